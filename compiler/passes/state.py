"""State that the caller passes in: which of it is constant, and state that passes add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

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
    ctx.params[name] = array.astype(dtype.numpy, order="C", copy=array.base is not None)
    return g.param(name, TensorType(dtype, cast("tuple[int, ...]", array.shape)))
