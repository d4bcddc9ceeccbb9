"""Compute at compile time what does not depend on feeds or on state that changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from compiler.errors import CompileError
from compiler.interpret import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text import show_op
from compiler.ir.types import Array
from compiler.passes.base import Context, Fact, Pass

LARGEST = 1 << 16
"""Elements of the largest constant worth computing at compile time."""


class FoldConstants(Pass):
    """f(c) with c constant  =  c'.

    A result that is one number everywhere becomes `fill_constant`; any other becomes state held in
    `ctx.params`, and is left alone where no params are lent to hold it.
    """

    name = "fold_constants"
    loses = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Walk in order, so that a chain of constants folds from its beginning."""
        values = _lent(g, ctx)
        for op in g.ops():
            if op.kind == "fill_constant" and not op.inputs:
                values |= _evaluate(op, values)
            elif _is_constant(op, values):
                self._fold(g, op, values, ctx)

    def _fold(self, g: Graph, op: Op, values: dict[Var, Array], ctx: Context) -> None:
        found = _evaluate(op, values)
        uniform = all(_is_uniform(array) for array in found.values())
        if not uniform and ctx.params is None:
            ctx.miss(
                self.name, op, "its value is not one number, and no params are lent to hold it"
            )
            return
        values |= found
        g.remove(op)
        for var, array in found.items():
            _define(g, var, array, op.source, ctx)


def _lent(g: Graph, ctx: Context) -> dict[Var, Array]:
    """State that is lent and that no op of the graph writes."""
    fixed = [var for var in g.params() if g.producer(var) is None and g.overwriter(var) is None]
    if ctx.params is None:
        return {}
    return {var: ctx.params[var.name] for var in fixed if var.name in ctx.params}


def _is_constant(op: Op, values: Mapping[Var, Array]) -> bool:
    """True for a pure op of the graph whose every input is known and whose outputs are small."""
    pure = not (op.defn.has_effects or op.defn.is_random or op.body is not None)
    if not pure or not op.reads():
        return False
    return all(map(_is_small, op.writes())) and all(var in values for var in op.reads())


def _is_small(var: Var) -> bool:
    """True for a temporary of known size that is no trouble to compute now."""
    size = var.type.numel
    own = var.role == "temp" and var.overwrites is None
    return own and isinstance(size, int) and size <= LARGEST


def _evaluate(op: Op, values: Mapping[Var, Array]) -> dict[Var, Array]:
    if not all(_is_small(var) for var in op.writes()):
        return {}
    arrays = {slot: [values[var] for var in vars] for slot, vars in op.inputs.items()}
    try:
        return dict(evaluate(op, arrays))
    except Exception as error:
        raise CompileError(f"{op.kind}: {error}", op=show_op(op), source=op.source) from error


def _is_uniform(array: Array) -> bool:
    """True for one number everywhere, told apart from the zero of the other sign; not for NaN."""
    same = array.size > 0 and array.tobytes() == array.flat[0].tobytes() * array.size
    return same and bool(array.flat[0] == array.flat[0])


def _define(g: Graph, var: Var, array: Array, source: str, ctx: Context) -> None:
    """Give a var the value it was found to have."""
    if _is_uniform(array):
        shape = [int(cast(int, size)) for size in var.type.shape]
        attrs = {"shape": shape, "dtype": var.type.dtype.code, **_number(array.flat[0].item())}
        g.op("fill_constant", {}, {"Out": [var]}, attrs, source)
        return
    assert ctx.params is not None
    held = g.param(var.name + "@const", var.type)
    ctx.params[held.name] = array
    g.op("assign", {"X": [held]}, {"Out": [var]}, {}, source)


def _number(number: float) -> dict[str, Any]:
    """The attributes of `fill_constant` for a number; as text what a float does not hold."""
    exact = {} if float(number) == number else {"str_value": str(number)}
    return {"value": float(number), **exact}
