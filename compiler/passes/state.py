"""State that the caller passes in: which of it is constant, and state that passes add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array, DType, TensorType
from compiler.passes.base import Context


def state_obstacle(g: Graph, vars: Iterable[Var], reader: Op, ctx: Context) -> str:
    """Return why nothing may be computed from vars at compile time; empty if it may.

    They must be state that was passed in and that no op but their `reader` writes, unchanged.
    """
    for var in vars:
        after = g.overwriter(var)
        if var.role != "param" or g.producer(var) is not None:
            return f"{var.label!r} is computed by the program"
        if after is not None and g.producer(after) is not reader:
            return f"{var.label!r} changes in every run"
        if ctx.params is None or var.name not in ctx.params:
            return f"the value of {var.label!r} may still change: no params were passed in"
    return ""


def add_state(g: Graph, name: str, array: Array, dtype: DType, ctx: Context) -> Var:
    """Add state for an array; if the name is taken, its suffix is repeated until it is free.

    The array may be that of no other state; it is copied if it is a view.
    """
    assert ctx.params is not None
    ending = name[name.rindex("@") :]
    while g.find(name) is not None:
        name += ending
    array = array if array.base is None else contiguous_copy(array)
    ctx.params[name] = array.astype(dtype.numpy, order="C", copy=False)
    return g.param(name, TensorType(dtype, cast("tuple[int, ...]", array.shape)))


_LARGE = 1 << 16
"""Elements from which a copy is made in blocks."""
_BLOCK, _LINE = 64, 16
"""Most rows of a block, and the elements of float32 in a cache line."""


def contiguous_copy(array: Array) -> Array:
    """Return a C-contiguous copy, up to ten times as fast where another axis became the last one.

    Transposed element by element, the rows of a matrix compete for the same few lines of the cache.
    Here blocks of rows go through a buffer, whose rows are one line longer.
    """
    if array.size < _LARGE or array.strides[-1] <= min(array.strides[:-1], default=0):
        return array.copy(order="C")
    rows = np.moveaxis(array, -1, 0)
    size = rows[0].size
    if size < _BLOCK:
        return array.copy(order="C")
    block = max(_LINE, min(_BLOCK, _LARGE // size // _LINE * _LINE))
    buffer = np.empty((block, size + _LINE), array.dtype)[:, :size].reshape(block, *rows.shape[1:])
    out = np.empty(array.shape, array.dtype)
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        staging = buffer[: len(part)]
        staging[...] = part
        out[..., start : start + block] = np.moveaxis(staging, 0, -1)
    return out
