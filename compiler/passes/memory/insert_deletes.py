"""Inserts deletes of values without a slot after their last read."""

from __future__ import annotations

from compiler.ir.analysis.liveness import kernels, lives
from compiler.ir.graph import Graph, Op, Var
from compiler.passes.base import Context, Pass


class InsertDeletes(Pass):
    """…; last(a); rest  =  …; last(a); delete_var(a); rest.

    For vars outside the arena: those of data-dependent size, and all of them if reuse is disabled.
    """

    name = "insert_deletes"

    def run(self, g: Graph, ctx: Context) -> None:
        """Insert a `delete_var` after each kernel that is the last reader of vars without a
        slot.
        """
        ending: dict[int, list[Var]] = {}
        results = set(g.results)
        for var, (_, stop) in lives(g).items():
            if var.slot is None and var not in results and g.overwriter(var) is None:
                ending.setdefault(stop - 1, []).append(var)
        if not ending:
            return
        order: list[Op] = []
        for step, ops in enumerate(kernels(g)):
            order += ops
            if step in ending:
                order.append(g.op("delete_var", {"X": ending[step]}, {}, last=True))
        g.reorder(order)
