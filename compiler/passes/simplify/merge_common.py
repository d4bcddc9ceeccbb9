"""Compute once what is computed twice."""

from __future__ import annotations

from collections.abc import Hashable

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpRole
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.simplify.value_replacement import is_wanted, refuse

LARGEST = 1 << 10
"""Elements of the largest constant to share: a larger one is filled again sooner than held."""


class MergeCommon(Pass):
    """b = f(x); …; c = f(x)  =  b = f(x), and whoever reads c reads b.

    Common subexpressions: ops of one type with the same attributes that read the same vars. Ops of
    chance, with effects, with a body, or that write over something stay. So does what the backward
    pass computes once more than the forward pass: that is done to save memory.
    """

    name = "merge_common"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Walk in order: once readers of c read b, what they compute is the same too."""
        first: dict[Hashable, Op] = {}
        for op in g.ops():
            if not _is_pure(op):
                continue
            known = first.setdefault(_key(op), op)
            if known is not op and (why := _merge(g, op, known)):
                ctx.note_missed(self.name, op, why)


def _is_pure(op: Op) -> bool:
    """True for an op whose outputs depend on its inputs and attributes alone, and are no lists."""
    if op.defn.has_effects or op.defn.is_random or op.body is not None:
        return False
    if any(var.type.is_array for var in op.writes()):
        return False
    return bool(op.inputs) or all(_is_small(var) for var in op.writes())


def _is_small(var: Var) -> bool:
    size = var.type.numel
    return isinstance(size, int) and size <= LARGEST


def _key(op: Op) -> Hashable:
    """What two ops have in common exactly where they compute the same."""
    inputs = tuple((slot, *op.inputs[slot]) for slot in op.defn.inputs() if slot in op.inputs)
    outputs = tuple((slot, len(vars)) for slot, vars in sorted(op.outputs.items()))
    return (op.kind, repr(op.defn.attributes), _pass_over(op), inputs, outputs)


def _pass_over(op: Op) -> int:
    """Which pass over the network an op belongs to: forward, backward, an update."""
    return int(op.attrs.get("op_role", 0)) & ~int(OpRole.LOSS)


def _merge(g: Graph, op: Op, known: Op) -> str:
    """Let the readers of an op's outputs read those of the known one, or say why not."""
    pairs = [
        pair
        for slot, vars in op.outputs.items()
        for pair in zip(vars, known.outputs[slot], strict=True)
        if is_wanted(g, pair[0])
    ]
    for copy, original in pairs:
        if copy in g.results:
            return f"{copy.label!r} is fetched, which is the same as {original.label!r}"
        if why := refuse(g, copy, original):
            return why
    g.remove(op)
    for copy, original in pairs:
        g.replace_uses(copy, original)
    return ""
