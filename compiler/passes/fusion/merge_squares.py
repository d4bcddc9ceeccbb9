"""Sums of squares as one op, so that the squares of a large tensor are not stored."""

from __future__ import annotations

from typing import Self

from compiler.ir.graph import Graph, Op, Var
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass, role_of


class MergeSquares(Pass):
    """reduce_sum(square(x)), over all elements  =  squared_l2_norm(x).

    A gradient is thus read once for its norm, and the norms of all gradients can share a launch. If
    x is merged sparse rows, whose size is data-dependent, `merge_rows` computes them instead: a
    fixed number of rows, of which the surplus is 0 and adds nothing.
    """

    name = "merge_squares"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices only."""
        return super().configure(options, target) if target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit every sum whose input is computed by a square."""
        for op in (op for op in g.ops() if op.kind == "reduce_sum"):
            square = _producer(g, op["X"], "square")
            if square is None:
                continue
            if why := _obstacle(g, square, op):
                ctx.note_missed(self.name, op, why)
                continue
            g.remove(square)
            source = _of_known_size(g, square["X"])
            g.replace(op, "squared_l2_norm", {"X": [source]}, {"Out": [op["Out"]]}, role_of(op))


def _producer(g: Graph, var: Var, kind: str) -> Op | None:
    """Return the producer of a var, if it is of a kind."""
    producer = g.producer(var)
    return producer if producer is not None and producer.kind == kind else None


def _obstacle(g: Graph, square: Op, op: Op) -> str:
    """Return why the squares must be stored; empty if they need not."""
    squared, out = square["Out"], op["Out"]
    if out.type.shape != (1,) or out.type.dtype is not squared.type.dtype:
        return "it does not reduce all elements to one scalar of their type"
    return "" if _is_inner(g, squared, op) else f"{squared.label!r} has other readers"


def _is_inner(g: Graph, var: Var, reader: Op) -> bool:
    """Whether a var is a temporary with a single reader."""
    alone = all(user is reader for user in g.readers(var)) and var not in g.results
    return alone and var.role == "temp" and var.overwrites is None and g.overwriter(var) is None


def _of_known_size(g: Graph, source: Var) -> Var:
    """Return merged sparse rows as a var of known size, padded with zeros; else the var itself."""
    taken = _producer(g, source, "get_tensor_from_selected_rows")
    merged = _producer(g, taken["X"], "merge_selected_rows") if taken is not None else None
    if taken is None or merged is None or "X_rows" not in merged.inputs or g.readers(source):
        return source
    if source in g.results or not all(_is_inner(g, var, taken) for var in merged.writes()):
        return source
    g.remove(taken)
    padded = g.fresh(source.label, merged["X"].type)
    g.replace(merged, "merge_rows", merged.inputs, {"Out": [padded]}, role_of(merged))
    return padded
