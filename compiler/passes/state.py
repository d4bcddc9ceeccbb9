"""State that the caller lends to passes: what may be computed of it now, what they add to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array, DType, TensorType
from compiler.passes.base import Context


def refuse_state(g: Graph, vars: Iterable[Var], reader: Op, ctx: Context) -> str:
    """Why nothing may be computed of vars before they are run; empty if it may.

    They are state that is lent and that nobody but their `reader` writes, which hands it on.
    """
    for var in vars:
        after = g.overwriter(var)
        if var.role != "param" or g.producer(var) is not None:
            return f"{var.label!r} is computed by the program"
        if after is not None and g.producer(after) is not reader:
            return f"{var.label!r} changes in every run"
        if ctx.params is None or var.name not in ctx.params:
            return f"the value of {var.label!r} may still change: no params were lent"
    return ""


def add_state(g: Graph, name: str, array: Array, dtype: DType, ctx: Context) -> Var:
    """New state for an array, under the first free name: with its ending once more where taken."""
    assert ctx.params is not None
    ending = name[name.rindex("@") :]
    while g.find(name) is not None:
        name += ending
    ctx.params[name] = array.astype(dtype.numpy)
    return g.param(name, TensorType(dtype, cast("tuple[int, ...]", array.shape)))
