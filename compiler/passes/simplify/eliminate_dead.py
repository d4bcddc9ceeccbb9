"""Dead code elimination: removes ops whose results are unused."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var
from compiler.passes.base import Context, Fact, Pass


class EliminateDead(Pass):
    """y = f(x), y never read  =  nothing.

    Roots are the results, every write of persistable state, and ops with side effects.
    """

    name = "eliminate_dead"
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Keep what the roots depend on; remove all other ops."""
        wanted = wanted_ops(g)
        g.remove(*(op for op in g.ops() if op not in wanted))


def wanted_ops(g: Graph) -> set[Op]:
    """Return every op that a root depends on, by data or order."""
    pending = [op for op in g.ops() if op.defn.has_effects or _writes_state(op)]
    pending += [op for op in map(g.producer, g.results) if op is not None]
    wanted: set[Op] = set()
    while pending:
        op = pending.pop()
        if op not in wanted:
            wanted.add(op)
            pending += [before for var in _sources(op) if (before := g.producer(var)) is not None]
    return wanted


def _writes_state(op: Op) -> bool:
    return any(var.role == "param" for var in op.writes())


def _sources(op: Op) -> list[Var]:
    return op.reads() + [var.overwrites for var in op.writes() if var.overwrites is not None]
