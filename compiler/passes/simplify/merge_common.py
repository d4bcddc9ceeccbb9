"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpRole
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.simplify.value_replacement import is_wanted, replacement_obstacle

LARGEST = 1 << 10
"""Maximum elements of a shared constant: a larger one is cheaper to fill again than to keep."""


class MergeCommon(Pass):
    """b = f(x); …; c = f(x)  =  b = f(x), and the readers of c read b.

    Ops of one type with the same attributes that read the same vars are merged. Ops that are
    random, have effects or a body, or overwrite a value remain. So do ops that the backward pass
    recomputes from the forward pass: that is done to save memory.
    """

    name = "merge_common"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order: once readers of c read b, their results are common too."""
        first: dict[Hashable, Op] = {}
        for op in g.ops():
            if not _is_pure(op):
                continue
            original = first.setdefault(_key(op), op)
            if original is not op and (why := _merge(g, op, original)):
                ctx.note_missed(self.name, op, why)


def _is_pure(op: Op) -> bool:
    """Whether an op's outputs depend only on its inputs and attributes, and are not tensor
    arrays.
    """
    if op.defn.has_effects or op.defn.is_random or op.body is not None:
        return False
    if any(var.type.is_array for var in op.writes()):
        return False
    return bool(op.inputs) or all(_is_small(var) for var in op.writes())


def _is_small(var: Var) -> bool:
    size = var.type.numel
    return isinstance(size, int) and size <= LARGEST


def _key(op: Op) -> Hashable:
    """Return a key that is equal for two ops exactly if they compute the same."""
    inputs = tuple((slot, *op.inputs[slot]) for slot in op.defn.inputs() if slot in op.inputs)
    outputs = tuple((slot, len(vars)) for slot, vars in sorted(op.outputs.items()))
    return (op.kind, repr(op.defn.attributes), _phase(op), inputs, outputs)


def _phase(op: Op) -> int:
    """Return the phase of an op: forward, backward or update."""
    return int(op.attrs.get("op_role", 0)) & ~int(OpRole.LOSS)


def _merge(g: Graph, op: Op, known: Op) -> str:
    """Redirect the readers of an op's outputs to those of the known one, or return why not."""
    pairs = [
        pair
        for slot, vars in op.outputs.items()
        for pair in zip(vars, known.outputs[slot], strict=True)
        if is_wanted(g, pair[0])
    ]
    for copy, original in pairs:
        if copy in g.results:
            return f"{copy.label!r} is fetched and equals {original.label!r}"
        if why := replacement_obstacle(g, copy, original):
            return why
    g.remove(op)
    for copy, original in pairs:
        g.replace_uses(copy, original)
    return ""
