"""Runs a compiled module once on made-up numbers, if it is small enough."""

from __future__ import annotations

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import CompileError
from compiler.ir.dims import Size, evaluate
from compiler.plan import Tensor
from runtime.loader import load

OPEN = 2
"""The value of every dynamic size."""
LARGEST = 1 << 22
"""Maximum bytes of a module's feeds, state and buffers."""


def runs(module: Module) -> bool:
    """Whether a module was run; False if it is too large or rejects these sizes."""
    sizes = dict.fromkeys(module.dims, OPEN)
    try:
        if _bytes(module, sizes) > LARGEST:
            return False
        feed = {tensor.name: _made(tensor, sizes) for tensor in module.feeds}
        load(module, params={param.name: _made(param, sizes) for param in module.params})(feed)
    except CompileError:
        return False
    return True


def _bytes(module: Module, sizes: dict[str, int]) -> int:
    tensors = [*module.feeds, *module.params, *module.fetches]
    total = sum(_count(tensor, sizes) * np.dtype(tensor.dtype).itemsize for tensor in tensors)
    return total + sum(abs(evaluate(buffer.nbytes, sizes)) for buffer in module.buffers)


def _count(tensor: Tensor, sizes: dict[str, int]) -> int:
    return int(np.prod([abs(_number(size, sizes)) for size in tensor.shape], dtype=object))


def _number(size: Size, sizes: dict[str, int]) -> int:
    """A size as a number; data-dependent sizes count as one."""
    return 1 if "?" in str(size) else evaluate(size, sizes)


def _made(tensor: Tensor, sizes: dict[str, int]) -> np.ndarray:
    """Zeros for integers, 0.5 for floats."""
    shape = [max(_number(size, sizes), 0) for size in tensor.shape]
    array = np.zeros(shape, tensor.dtype)
    return array if array.dtype.kind in "iub" else array + np.asarray(0.5, array.dtype)
