"""Cost of the graph after each pass, as if the later passes made no changes.

An unplaced graph is assigned to its target and one without memory scheduled; then it is frozen and
counted as a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.target import Target
from compiler.cost.plan_cost import PlanCost, account
from compiler.driver import planned
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.device.assign_targets import AssignTargets
from compiler.passes.manager import run_passes
from compiler.passes.memory.schedule import Schedule
from compiler.record import Stage


def costs_by_stage(
    stages: Sequence[Stage],
    sizes: Mapping[str, int],
    target: Target,
    options: Options | None = None,
) -> list[PlanCost]:
    """Return the cost of each stage of a compilation; unchanged stages are counted once."""
    costs: dict[str, PlanCost] = {}
    for text in (stage.text for stage in stages):
        if text not in costs:
            costs[text] = graph_cost(parse(text), sizes, target, options)
    return [costs[stage.text] for stage in stages]


def graph_cost(
    g: Graph, sizes: Mapping[str, int], target: Target, options: Options | None = None
) -> PlanCost:
    """Return the cost of a graph, which is modified: unplaced ops are assigned to the target.

    Without memory it is scheduled; then what shares memory, such as a reshaped tensor, is copied.
    """
    placed = target.name == "numpy" or any(op.target for op in g.ops())
    passes: list[Pass] = [] if placed else [AssignTargets(target)]
    if all(var.slot is None for var in g.vars()):
        passes.append(Schedule(search=False))
    run_passes(g, passes, Context())
    return account(planned(g, options or Options()), sizes)
