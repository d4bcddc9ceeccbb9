"""Fetched arrays of one element convert to numbers, as in the NumPy of release 1.8."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from compiler.ir.types import Array
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["OneValue", "number_like"]

Value: TypeAlias = Array | LoDTensor | list[Array | LoDTensor | None]
"""A fetched value: an array, a LoDTensor if it has LoD, or the items of a tensor array."""
NestedTensors: TypeAlias = "LoDTensor | list[NestedTensors]"
NestedArrays: TypeAlias = "Array | list[NestedArrays] | None"


class OneValue(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """An array of one element (such as a loss), or with rows of one, that converts to a number.

    Scripts use `"%f" % loss` and `float(loss)` on a loss of shape [1] and on rows of a prediction
    of shape [N, 1]; NumPy 2.4 and later refuses that for arrays with dimensions. Results of
    arithmetic with one element convert too. Pickled, it is a plain array.

    >>> loss = number_like(np.array([0.25], np.float32))
    >>> float(loss), "%.1f" % (loss * 2), int(loss), loss
    (0.25, '0.5', 0, array([0.25], dtype=float32))
    >>> ["%d" % row for row in number_like(np.array([[3], [4]]))]
    ['3', '4']
    """

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def _number(self) -> float:
        if self.size != 1:
            raise TypeError(
                f"an array of shape {self.shape} is not a number: it must have one element"
            )
        return self.item()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if return_scalar:
            return array[()]
        return number_like(array.view(np.ndarray))


def number_like(value: Value) -> Value:
    """Wrap an array with one element, or with rows of one, in `OneValue`; return others unchanged.

    >>> number_like(np.zeros(2))
    array([0., 0.])
    """
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    has_such_rows = value.ndim > 1 and math.prod(value.shape[1:]) == 1
    return value.view(OneValue) if has_such_rows or value.size == 1 else value


def as_numpy(tensor: NestedTensors) -> NestedArrays:
    """The array of a LoDTensor, None if it is empty; for a list, a list of arrays.

    Raises RuntimeError for a tensor with LoD, which an array cannot represent.
    """
    if isinstance(tensor, list):
        return [as_numpy(item) for item in tensor]
    if tensor.lod():
        raise RuntimeError(f"a tensor with the LoD {tensor.lod()} cannot be a plain array")
    return None if tensor.read() is None else np.array(tensor)


def as_tensor(value: Value) -> LoDTensor | list[LoDTensor]:
    """A LoDTensor, or a list of them for a tensor array; those of items never written are empty."""
    if isinstance(value, list):
        return [_tensor(item) for item in value]
    return _tensor(value)


def _tensor(value: Array | LoDTensor | None) -> LoDTensor:
    return value if isinstance(value, LoDTensor) else LoDTensor(value)
