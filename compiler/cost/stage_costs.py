"""The account of a graph as it stands between two passes, as if those behind had nothing to do.

A graph is placed on its target and put in order if it is not yet, frozen, and counted as a plan is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.target import Target
from compiler.cost.plan_cost import Account, account
from compiler.freeze import freeze
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse
from compiler.passes.base import Context, Pass
from compiler.passes.device.assign_targets import AssignTargets
from compiler.passes.manager import run_passes
from compiler.passes.memory.schedule import Schedule
from compiler.record import Stage


def stage_accounts(
    stages: Sequence[Stage], sizes: Mapping[str, int], target: Target
) -> list[Account]:
    """The account of each stage of a compilation for a target; that of one without change again."""
    known: dict[str, Account] = {}
    for text in (stage.text for stage in stages):
        if text not in known:
            known[text] = graph_account(parse(text), sizes, target)
    return [known[stage.text] for stage in stages]


def graph_account(g: Graph, sizes: Mapping[str, int], target: Target) -> Account:
    """The account of a graph, which is changed: what has no place yet gets one on the target."""
    placed = target.name == "numpy" or any(op.target for op in g.ops())
    passes: list[Pass] = [] if placed else [AssignTargets(target.supports)]
    run_passes(g, [*passes, Schedule(search=False)], Context())
    return account(freeze(g), sizes)
