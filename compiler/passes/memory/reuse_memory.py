"""Buffer assignment: temporaries get slots of the arena; in-place ops and sub-buffers avoid
copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compiler.ir.analysis.allocation import clashes
from compiler.ir.analysis.liveness import InPlaceRules, kernels, lives, supports_strided_rows
from compiler.ir.analysis.memory_writes import Aliases
from compiler.ir.analysis.region_index import RegionIndex
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.slots import Share
from compiler.ir.region import WHOLE, Region, subregion
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.memory.schedules import nbytes
from compiler.passes.memory.views import Parts, chosen_parts


class ReuseMemory(Pass):
    """b = f(a), a not read again  =  b in the memory of a;  b = part of a  =  b where a is.

    Vars share a slot only in these cases, so a slot is live without gaps and has one size; the
    offsets of slots are computed from their live ranges when sizes are known (`compiler.pack`).
    Values of data-dependent size get no slot. In place is legal for pointwise kernels over inputs
    of the output's full shape, and for ops that declare it. Sub-buffers are those of concat, split
    and slice, and reshapes; inputs of a concat are written directly into its result, if that takes
    no more memory.
    """

    name = "reuse_memory"
    requires = frozenset({Fact.ORDERED})
    establishes = frozenset({Fact.STORED})
    invalidates = frozenset({Fact.STORED})

    def __init__(self, parts: bool = True) -> None:
        self.parts = parts

    def run(self, g: Graph, ctx: Context) -> None:
        """Plan with sub-buffers of later and earlier values, of earlier ones, and without; take the
        best.
        """
        tries = chosen_parts(g, ctx.typical) if self.parts else [Parts()]
        plans = [_Planner(g, parts) for parts in tries]
        for plan in plans:
            plan.run()
        best = min(plans, key=lambda plan: plan.peak(ctx.typical))
        for var, (slot, region) in best.allocations.items():
            var.slot, var.region = slot, region


class _Kernel(NamedTuple):
    """An op of a kernel, with what it may alias."""

    step: int
    rules: InPlaceRules
    op: Op
    aliases: Aliases[Var]


class _Planner:
    """One walk over the kernels in order; `parts` maps each sub-buffer to its containing buffer."""

    def __init__(self, g: Graph, parts: Parts) -> None:
        self.graph = g
        self.parts = parts
        self.kept = set(g.results)
        self.live_ranges = lives(g)
        self.steps = kernels(g)
        self.allocations: dict[Var, tuple[int, Region]] = {}
        self.held: list[RegionIndex[Var]] = []

    def run(self) -> None:
        """Place the outputs of each kernel; the labels of the graph are only used temporarily."""
        for step, ops in enumerate(self.steps):
            dying = _dying(ops, step, self.live_ranges)
            rules = InPlaceRules(ops, self.live_ranges)
            for op in ops:
                kernel = _Kernel(step, rules, op, Aliases(op))
                for var in (v for v in op.writes() if v in self.live_ranges and not v.type.is_open):
                    self._place(kernel, var, dying)
        for var in self.allocations:
            var.slot, var.region = None, WHOLE

    def _place(self, kernel: _Kernel, var: Var, dying: Sequence[Var]) -> None:
        """Place a var in the slot it overwrites, as planned, over a dying var, or in a new slot."""
        if var.overwrites is not None and var.overwrites in self.allocations:
            return self._put(var, *self.allocations[var.overwrites])
        if var in self.allocations and self._try_put(kernel, var, *self.allocations[var]):
            return None
        if var in self.parts:
            place = self._sub_buffer(*self.parts[var], var)
            if place is not None and self._try_put(kernel, var, *place):
                return None
        for old in dying:
            fits = old.type.nbytes == var.type.nbytes and old in self.allocations
            fits = fits and kernel.rules.allow(old, var)
            if fits and self._try_put(kernel, var, *self.allocations[old]):
                return None
        return self._put(var, *self._new_slot())

    def _sub_buffer(self, whole: Var, share: Share, part: Var) -> tuple[int, Region] | None:
        """Return the place of a sub-buffer; its containing buffer is placed first if necessary."""
        if whole not in self.allocations:
            outer = self.parts.get(whole)
            place = self._sub_buffer(*outer, whole) if outer is not None else self._new_slot()
            if place is None:
                return None
            self._put(whole, *place)
        slot, outer_region = self.allocations[whole]
        region = subregion(outer_region, whole.type, part.type, share)
        return None if region is None else (slot, region)

    def _try_put(self, kernel: _Kernel, var: Var, slot: int, region: Region) -> bool:
        """Put a var in a place if it may be written there; return whether it was."""
        if region.is_strided and not supports_strided_rows(self.graph, var, region):
            return False
        others = self.held[slot]
        if var in self.kept and any(other in self.kept for other in others if other is not var):
            return False  # results share memory with nothing
        if self.graph.overwriter(var) and any(
            self.live_ranges[other][1] > kernel.step + 1 for other in others if other is not var
        ):
            return False  # a later overwrite must not clobber others
        before = (var.slot, var.region)
        var.slot, var.region = slot, region
        step, rules, op, aliases = kernel
        if any(clashes(rules, op, aliases, var, others, self.live_ranges, step)):
            var.slot, var.region = before
            return False
        self._put(var, slot, region)
        return True

    def _new_slot(self) -> tuple[int, Region]:
        self.held.append(RegionIndex())
        return len(self.held) - 1, WHOLE

    def _put(self, var: Var, slot: int, region: Region) -> None:
        if var in self.allocations:
            self.held[self.allocations[var][0]].discard(var)
        var.slot, var.region = slot, region
        self.allocations[var] = (slot, region)
        self.held[slot].add(var, var.type, region)

    def peak(self, typical: int) -> int:
        """Return the maximum live bytes of the slots."""
        live = [0] * (len(self.steps) + 2)
        for vars in filter(None, self.held):
            size = max(nbytes(var.type, typical) for var in vars)
            live[min(self.live_ranges[var][0] for var in vars)] += size
            live[max(self.live_ranges[var][1] for var in vars)] -= size
        peak = total = 0
        for change in live:
            total += change
            peak = max(peak, total)
        return peak


def _dying(ops: Sequence[Op], step: int, live_ranges: dict[Var, tuple[int, int]]) -> list[Var]:
    """Return the vars whose last readers are these ops, defined before them."""
    read = dict.fromkeys(var for op in ops for var in op.needs_data() if var in live_ranges)
    return [var for var in read if live_ranges[var][0] < step and live_ranges[var][1] == step + 1]
