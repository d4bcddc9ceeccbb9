"""Merges consecutive transposes, and removes those that cancel."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.simplify.value_replacement import is_wanted, merge, remove_if_unused

_TRANSPOSES = frozenset({"transpose", "transpose2"})

_FLAGS = {
    "matmul": {"X": "transpose_X", "Y": "transpose_Y"},
    "matmul_v2": {"X": "trans_x", "Y": "trans_y"},
}
"""Products that can transpose the last two axes of an operand, and the attribute for it."""


class MergeTransposes(Pass):
    """(x in order a) in order b  =  x in order a∘b; x itself, if a∘b is the identity.

    A transpose of a product's matrix becomes a flag of the product, which then reads the original.
    An intermediate value with other readers remains; merging would then gain nothing.
    """

    name = "merge_transposes"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order, so that three consecutive ones become one."""
        for op in g.ops():
            below = _transposed(g, op["X"]) if op.kind in _TRANSPOSES else None
            why = _merge(g, op, below) if below is not None else ""
            if op.kind in _FLAGS:
                why = _absorb(g, op)
            if why:
                ctx.note_missed(self.name, op, why)


def _transposed(g: Graph, var: Var) -> Op | None:
    """Return the transpose that produces a var."""
    maker = g.producer(var)
    return maker if maker is not None and maker.kind in _TRANSPOSES else None


def _merge(g: Graph, op: Op, below: Op) -> str:
    """Replace two consecutive ops by one, or return why not."""
    first, second = below.defn.attributes["axis"], op.defn.attributes["axis"]
    axis = [first[place] for place in second]
    x, between, out = below["X"], op["X"], op["Out"]
    if why := _obstacle(g, op, x):
        return why
    if axis == sorted(axis):
        why = merge(g, op, out, x)
        remove_if_unused(g, below)
        return why
    if g.readers(between) != [op] or between in g.results:
        return f"{between.label!r} has other readers"
    g.replace(op, "transpose", {"X": [x]}, {"Out": [out]}, {"axis": axis} | role_of(op))
    remove_if_unused(g, below)
    return ""


def _obstacle(g: Graph, op: Op, x: Var) -> str:
    """Return why an op must not read the input of its operand's transpose; empty if it may."""
    if any(is_wanted(g, var) for var in op.outputs.get("XShape", [])):
        return "its gradient needs the intermediate shape"
    return f"{x.label!r} is overwritten later" if g.overwriter(x) is not None else ""


def _absorb(g: Graph, product: Op) -> str:
    """Replace the transpose of a product's operand by a flag, or return why not."""
    for slot, flag in _FLAGS[product.kind].items():
        var = product[slot]
        below = _transposed(g, var)
        if below is None or not _swaps_last(below.defn.attributes["axis"]):
            continue
        if g.readers(var) != [product] or var in g.results:
            return f"{var.label!r} has other readers"
        if why := _obstacle(g, product, below["X"]):
            return why
        inputs = {**product.inputs, slot: [below["X"]]}
        attrs = {**product.attrs, flag: not product.defn.attributes[flag]}
        product = g.replace(product, product.kind, inputs, product.outputs, attrs)
        remove_if_unused(g, below)
    return ""


def _swaps_last(axis: list[int]) -> bool:
    """Whether a permutation swaps the last two axes only."""
    return axis == [*range(len(axis) - 2), len(axis) - 1, len(axis) - 2]
