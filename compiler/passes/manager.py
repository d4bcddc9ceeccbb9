"""Pass manager: runs passes in order and checks the contract of each.

An invalid order is an error before anything runs. An edited graph is swept of orphans and verified;
every claimed fact is checked after each pass; observers see the graph before the first pass and
after each. Errors name the pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from compiler.errors import PassOrderError, VerifyError
from compiler.ir.analysis.allocation import check_stored
from compiler.ir.analysis.verifier import check_grouped, check_ordered, verify
from compiler.ir.graph import Changes, Graph
from compiler.ir.region import WHOLE
from compiler.passes.base import Context, Fact, Pass


class Observer(Protocol):
    """An observer of a pipeline, unknown to the passes."""

    def start(self, g: Graph, ctx: Context) -> None:
        """Called with the graph before the first pass."""
        ...

    def before(self, each: Pass, g: Graph) -> None:
        """Called with the graph before each pass."""
        ...

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Called with the verified graph after each pass."""
        ...


_CHECKS: dict[Fact, Callable[[Graph], None]] = {
    Fact.GROUPED: check_grouped,
    Fact.ORDERED: check_ordered,
    Fact.STORED: check_stored,
}


def check_order(passes: Sequence[Pass]) -> None:
    """Raise PassOrderError if a pass requires a fact that no earlier pass establishes, or one lost
    since.
    """
    facts: set[Fact] = set()
    lost_by: dict[Fact, str] = {}
    for pass_ in passes:
        for fact in sorted(pass_.requires - facts, key=lambda fact: fact.name):
            raise PassOrderError(
                f"pass {pass_.name!r} requires {fact.name} ({fact.value})",
                hint=_order_hint(fact, lost_by.get(fact)),
            )
        lost_by |= dict.fromkeys((facts & pass_.invalidates) - pass_.establishes, pass_.name)
        facts = (facts - pass_.invalidates) | pass_.establishes


def _order_hint(fact: Fact, culprit: str | None) -> str:
    if culprit is not None:
        return f"pass {culprit!r} invalidates {fact.name}: run it earlier"
    return f"run a pass that establishes {fact.name} before it"


def run_passes(
    g: Graph,
    passes: Sequence[Pass],
    ctx: Context,
    observers: Sequence[Observer] = (),
    *,
    is_converted: bool = False,
) -> None:
    """Run passes over a graph in place.

    The graph is verified before the first pass, unless it is that of a program just converted, and
    after the last one; after each, what the pass changed. Raises PassOrderError before the first
    one runs, and VerifyError, with the pass named in a note, after one that broke an invariant.
    """
    check_order(passes)
    if not is_converted:
        verify(g)
    for observer in observers:
        observer.start(g, ctx)
    g.sweep()
    facts: set[Fact] = set()
    for pass_ in passes:
        for observer in observers:
            observer.before(pass_, g)
        since = time.perf_counter()
        facts = _run_one(pass_, g, ctx, facts)
        ctx.milliseconds[pass_.name] = (time.perf_counter() - since) * 1e3
        for observer in observers:
            observer.after(pass_, g, ctx)
    _verify_all(g)


def _run_one(each: Pass, g: Graph, ctx: Context, known: set[Fact]) -> set[Fact]:
    """Run a pass, and return the facts that are known after it, each of which was checked."""
    seen, labels = g.edits, _labels(g)
    g.changed = Changes()
    facts = (known - each.invalidates) | each.establishes
    try:
        _remove_labels(g, each.invalidates)
        each.run(g, ctx)
        if g.edits != seen:
            _assign_new_ops(g, ctx)
            g.sweep()
            verify(g, g.changed)
        is_same = g.edits == seen and _labels(g) == labels
        for fact in (fact for fact in Fact if fact in facts):
            if not (is_same and fact in known):
                _CHECKS[fact](g)
    except Exception as error:
        error.add_note(f"in pass {each.name!r}")
        raise
    return facts


def _labels(g: Graph) -> list[tuple[object, ...]]:
    """Return the labels of all ops and vars."""
    ops = [(op.kernel, op.part, op.target) for op in g.ops()]
    return [*ops, *((var.slot, var.region) for var in g.vars())]


def _verify_all(g: Graph) -> None:
    """Verify the whole graph: passes may have changed ops and vars without the graph's methods."""
    try:
        verify(g)
    except VerifyError as error:
        error.add_note("after all passes: one of them changed this without a method of the graph")
        raise


def _assign_new_ops(g: Graph, ctx: Context) -> None:
    """Assign ops that a pass created after `assign_targets` to the target, if it has code for
    them.
    """
    if ctx.target is None:
        return
    for op in g.changed.ops:
        if op.target is None and not ctx.target.supports(op):
            op.target = ctx.target.name


def _remove_labels(g: Graph, facts: frozenset[Fact]) -> None:
    """Remove the labels of invalidated facts, and deletes together with the slots."""
    if Fact.GROUPED in facts:
        for op in g.ops():
            op.kernel = op.part = None
    if Fact.STORED in facts:
        for var in g.vars():
            var.slot, var.region = None, WHOLE
        deletes = [op for op in g.ops() if op.kind == "delete_var"]
        g.remove(*deletes)
        if deletes:
            g.reorder(g.ops())
