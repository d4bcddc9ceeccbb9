"""Element types: how NumPy arrays and tensors are passed to an engine, without a copy if possible.

Gloo reduces float32, float64, float16, bfloat16, int8, uint8, int32 and int64, each in its own
precision. int16 is reduced as int32 and copied back, where it wraps as in NumPy. bool is reduced
as uint8: a sum or maximum is true if any rank's is, a product or minimum if all are. Data that is
only moved (broadcast, gather, scatter) is sent as bytes, so every type is supported.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.collective.engine import torch_module
from runtime.gpu.cuda import bytes_of, numpy_dtype, tensor_over

OPERATIONS = {"sum": "SUM", "max": "MAX", "min": "MIN", "prod": "PRODUCT"}
"""Reduction names used here, mapped to those of torch.distributed."""

BOOL_OPERATIONS = {"sum": "max", "max": "max", "min": "min", "prod": "min"}


def expect_operation(operation: str) -> None:
    """Raise ValueError for an unknown reduction."""
    if operation not in OPERATIONS:
        names = ", ".join(OPERATIONS)
        raise ValueError(f"a reduction is one of {names}, not {operation!r}")


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor, not a NumPy array."""
    return not isinstance(value, np.ndarray)


def element_name(value: Any) -> str:
    """The name of the element type of an array or tensor: `float32`."""
    return _type_name(value.dtype)


@cache
def _type_name(dtype: object) -> str:
    """The name of an element type, cached: NumPy recomputes it each time, which takes
    microseconds.
    """
    return str(dtype).removeprefix("torch.")


def describe(value: Any) -> str:
    """Element type and shape, as in messages and signatures: `float32[4, 3]`."""
    return f"{element_name(value)}[{', '.join(map(str, value.shape))}]"


def expect_contiguous(value: Any, *, writes: bool = False) -> None:
    """Raise ValueError if the elements are not contiguous, or read-only and to be written."""
    if is_tensor(value):
        if not value.is_contiguous():
            raise ValueError(
                f"a collective needs a contiguous tensor, not strides {value.stride()}"
            )
        return
    if not value.flags.c_contiguous:
        raise ValueError(f"a collective needs a contiguous array, not strides {value.strides}")
    if writes and not value.flags.writeable:
        raise ValueError("a collective writes into its array, which is read-only")


def host_array(value: Any) -> Array:
    """A flat array over the memory of a contiguous array, or of such a tensor on the host."""
    if not is_tensor(value):
        return value.reshape(-1)
    return bytes_of(value).numpy().view(numpy_dtype(value))


def tensor_of(value: Any) -> Any:
    """A tensor over the memory of an array, or a copy of a read-only array; a tensor is returned
    as it is.
    """
    if is_tensor(value):
        return value
    return tensor_over(value if value.flags.writeable else value.copy())


def reducible(tensor: Any, operation: str) -> tuple[Any, str, bool]:
    """Return a tensor that the engine can reduce, the reduction, and whether the tensor is a
    copy.
    """
    torch = torch_module()
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8), BOOL_OPERATIONS[operation], False
    if tensor.dtype == torch.int16:
        return tensor.to(torch.int32), operation, True
    return tensor, operation, False
