"""Sums of squares in one go: the squares of a large tensor need not be in memory."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op
from compiler.ir.sides import runs_on_device
from compiler.passes.base import Context, Fact, Pass


class MergeSquares(Pass):
    """reduce_sum(square(x)), over all elements  =  squared_l2_norm(x).

    So a gradient is read once for its norm, and the norms of all can be of one launch.
    """

    name = "merge_squares"
    loses = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Look at every sum whose terms a square makes."""
        for op in (op for op in g.ops() if op.kind == "reduce_sum"):
            square = g.producer(op["X"])
            if square is None or square.kind != "square" or not runs_on_device(square):
                continue
            if why := _refuse(g, square, op):
                ctx.miss(self.name, op, why)
                continue
            attrs = {n: v for n, v in op.attrs.items() if n.startswith("op_")}
            g.remove(square)
            g.replace(op, "squared_l2_norm", {"X": [square["X"]]}, {"Out": [op["Out"]]}, attrs)


def _refuse(g: Graph, square: Op, op: Op) -> str:
    """Why squares must be there; empty if they need not."""
    made, out = square["Out"], op["Out"]
    if out.type.shape != (1,) or out.type.dtype is not made.type.dtype:
        return "it does not sum all elements to one number of their type"
    if g.readers(made) != [op] or made in g.results:
        return f"{made.label!r} has other readers"
    if not runs_on_device(op) or made.overwrites is not None or made.role != "temp":
        return f"{made.label!r} is not by itself on the device"
    return ""
