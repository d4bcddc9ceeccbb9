"""Constant folding: evaluates at compile time what depends neither on feeds nor on mutable
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from compiler.errors import CompileError
from compiler.interpret import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.slots import as_float32
from compiler.ir.text.printer import show_op
from compiler.ir.types import Array, is_floating
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.simplify.value_replacement import is_wanted
from compiler.passes.state import add_state

LARGEST = 1 << 16
"""Maximum elements of a folded constant, unless its inputs are larger, up to the size of all state
that was passed in.
"""


class FoldConstants(Pass):
    """f(c) with c constant  =  c'.

    Constant are outputs of fill ops, state that was passed in and that no op writes, shapes of vars
    with known sizes, and everything computed from these. Of a chain only the end is stored, as
    state in `ctx.params`, which no step computes. A number, a large uniform value, and any uniform
    value if no params were passed in, becomes `fill_constant`; others are then not folded.
    """

    name = "fold_constants"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Evaluate forwards along every chain; rewrite from its end."""
        values = _constant_state(g, ctx)
        state_size = sum(array.size for array in values.values())
        folded = list[Op]()
        for op in g.ops():
            inputs = _constant_inputs(op, values) if _may_fold(op, state_size) else None
            if inputs is not None:
                values |= _evaluate(op, inputs)
                folded += [op] if op.reads() else []
        for op in reversed(folded):
            self._replace(g, op, values, ctx)

    def _replace(self, g: Graph, op: Op, values: Mapping[Var, Array], ctx: Context) -> None:
        wanted = [var for var in op.writes() if is_wanted(g, var)]
        if ctx.params is None and not all(_is_uniform(values[var]) for var in wanted):
            ctx.note_missed(
                self.name, op, "its value is not uniform, and no params were passed in to store it"
            )
            return
        g.remove(op)
        for var in wanted:
            _define(g, var, values[var], op, ctx)


def _constant_state(g: Graph, ctx: Context) -> dict[Var, Array]:
    """Return the state that was passed in and that no op of the graph writes."""
    fixed = [var for var in g.params() if g.producer(var) is None and g.overwriter(var) is None]
    if ctx.params is None:
        return {}
    return {var: ctx.params[var.name] for var in fixed if var.name in ctx.params}


def _may_fold(op: Op, state_size: int) -> bool:
    """Whether an op is pure and every output is a small temporary of known size.

    `state_size` is the number of elements of the state that was passed in: constants do not grow
    beyond it, however often they are concatenated.
    """
    if op.defn.has_effects or op.defn.is_random or op.body is not None:
        return False
    sizes = [var.type.numel for var in dict.fromkeys(op.reads())]
    limit = max(LARGEST, min(state_size, sum(size for size in sizes if isinstance(size, int))))
    return all(_is_small(var, limit) for var in op.writes())


def _is_small(var: Var, limit: int) -> bool:
    size = var.type.numel
    own = var.role == "temp" and var.overwrites is None and not var.type.is_array
    return own and isinstance(size, int) and size <= limit


def _constant_inputs(op: Op, values: Mapping[Var, Array]) -> dict[str, list[Array]] | None:
    """Return the arrays of an op's slots; None if one of them is not constant."""
    slots = op.defn.slots
    arrays: dict[str, list[Array]] = {}
    for slot, vars in op.inputs.items():
        if all(var in values for var in vars):
            arrays[slot] = [values[var] for var in vars]
        elif slots[slot].shape_only and not any(_is_unsized(var) for var in vars):
            arrays[slot] = [_shape_only_array(var) for var in vars]
        else:
            return None
    return arrays


def _is_unsized(var: Var) -> bool:
    return var.type.is_array or not all(isinstance(size, int) for size in var.type.shape)


def _shape_only_array(var: Var) -> Array:
    """Return an array of which only the shape is used."""
    return np.broadcast_to(np.zeros((), var.type.dtype.numpy), var.type.at({}))


def _evaluate(op: Op, given: Mapping[str, list[Array]]) -> dict[Var, Array]:
    for var in op.writes():
        _ = var.type.dtype.numpy  # raises the error that says what to install for bfloat16
    try:
        return _separate(dict(evaluate(op, given)), given)
    except Exception as error:
        raise CompileError(f"{op.kind}: {error}", op=show_op(op), source=op.source) from error


def _separate(found: dict[Var, Array], given: Mapping[str, list[Array]]) -> dict[Var, Array]:
    """Copy the results that are arrays of the inputs, or of earlier results."""
    ids = {id(array) for arrays in given.values() for array in arrays}
    for var, array in found.items():
        if id(array) in ids:
            found[var] = array.copy()
        ids.add(id(array))
    return found


def _is_uniform(array: Array) -> bool:
    """Whether all elements are equal, including the sign of zero; False for NaN."""
    if array.size == 0 or array.flat[0] != array.flat[-1] or not (array == array.flat[0]).all():
        return False
    signs = np.signbit(array) if is_floating(array.dtype) else array
    return bool((signs == signs.flat[0]).all())


def _define(g: Graph, var: Var, array: Array, op: Op, ctx: Context) -> None:
    """Define a var as a constant; its readers read the state that contains it."""
    is_stored = ctx.params is not None and 1 < array.size <= LARGEST
    if _is_uniform(array) and not is_stored:
        shape = [int(cast(int, size)) for size in var.type.shape]
        attrs = {"shape": shape, "dtype": var.type.dtype.code, **_number(array.flat[0].item())}
        attrs |= role_of(op)
        g.op("fill_constant", {}, {"Out": [var]}, attrs, op.source, place=op.position)
        return
    state = add_state(g, var.name + "@const", array, var.type.dtype, ctx)
    if var in g.results or g.overwriter(var) is not None:
        role = role_of(op)
        g.op("assign", {"X": [state]}, {"Out": [var]}, role, op.source, place=op.position)
    else:
        g.replace_uses(var, state)


def _number(number: float) -> dict[str, Any]:
    """Return the attributes of `fill_constant` for a number; as text if the attribute, a float32,
    cannot represent it.
    """
    exact = {} if as_float32(float(number)) == number else {"str_value": str(number)}
    return {"value": float(number), **exact}
