"""Rematerialisation: cheap values are computed twice instead of kept from first to last use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Self

from compiler.ir.graph import Graph, Op, Var
from compiler.options import Options, budget_bytes
from compiler.passes.base import Context, Fact, OpTarget, Pass
from compiler.passes.memory.rematerialisation import Recipe, Timeline
from compiler.support.dataclass import dataclass


class Recompute(Pass):
    """y = f(x); …; g(y); …; h(y)  =  y = f(x); …; g(y); …; y#1 = f(x); h(y#1).

    Until no step has more bytes of live temporaries than `ctx.memory_budget`, the value is evicted
    that saves most bytes at the peak per byte recomputed. f is pointwise, or declared cheap, or
    declares how its result is recomputed: a batch norm from its input and the statistics that
    backward reads anyway. Results are bitwise equal. Chen et al., arXiv 1604.06174, chose segments
    by hand; here the steps of a fixed schedule are compared.
    """

    name = "recompute"
    requires = frozenset({Fact.ORDERED})
    establishes = frozenset({Fact.ORDERED})
    invalidates = frozenset({Fact.STORED})

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run with a memory budget only."""
        return None if options.memory_budget is None else super().configure(options, target)

    def run(self, g: Graph, ctx: Context) -> None:
        """Choose values while the peak decreases, then rewrite the graph."""
        if ctx.memory_budget is None:
            return
        timeline = Timeline(g, ctx.typical)
        budget = budget_bytes(ctx.memory_budget, timeline.peak)
        while timeline.peak > budget and timeline.evict_best():
            pass
        if timeline.peak > budget:
            full = timeline.steps[min(timeline.peak_step(), len(timeline.steps) - 1)]
            missing = f"{timeline.peak:,d} bytes are live here, the budget is {budget:,d}"
            ctx.note_missed(
                self.name, full[0], f"{missing}; no other value can be recomputed cheaply"
            )
        _Writer(g, timeline).write()


@dataclass
class _Writer:
    """Inserts the second producers into a graph, and redirects later readers to them."""

    graph: Graph
    timeline: Timeline
    copies: dict[Var, Var] = field(default_factory=dict[Var, Var])

    def write(self) -> None:
        """Recompute every chosen var, in the order of steps and, in a step, of their producers."""
        chosen = self.timeline.again
        place = {op: index for index, op in enumerate(self.graph.ops())}
        first = {var: place[op] for var in chosen if (op := self.graph.producer(var)) is not None}
        kernel = max((op.kernel for op in place if op.kernel is not None), default=-1)
        before: dict[int, list[Op]] = {}
        for var in sorted(chosen, key=lambda var: (chosen[var].step, first[var])):
            recipe = self.timeline.recipe(var)
            assert recipe is not None, "only what has a recipe is chosen"
            kernel += 1
            before.setdefault(chosen[var].step, []).extend(self._repeat(var, recipe, kernel))
        for var in chosen:
            self._rewire(var, place)
        steps = enumerate(self.timeline.steps)
        self.graph.reorder(op for step, ops in steps for op in (*before.get(step, ()), *ops))

    def _repeat(self, var: Var, recipe: Recipe, kernel: int) -> list[Op]:
        """Repeat the ops of a recipe, reading recomputed vars if they are available."""
        step = self.timeline.again[var].step
        again = self.timeline.again
        copies = {old: new for old, new in self.copies.items() if again[old].step <= step}
        ops = [self._repeat_op(op, var, copies) for op in recipe.ops]
        for op in ops:
            op.kernel = kernel if len(ops) > 1 else None
        self.copies[var] = copies[var]
        return ops

    def _repeat_op(self, op: Op, wanted: Var, copies: dict[Var, Var]) -> Op:
        """Repeat one op; `copies` is extended by its outputs."""
        again = op.defn.again()
        kind, attrs = (op.kind, op.attrs) if again is None else (again.kind, again.attrs)
        slots: Mapping[str, list[Var]] = {**op.outputs, **op.inputs}
        taken = {slot: slot for slot in op.inputs} if again is None else again.inputs
        repeated = {slot: slot for slot in op.outputs} if again is None else again.outputs
        inputs = {mine: [copies.get(v, v) for v in slots[theirs]] for mine, theirs in taken.items()}
        outputs = {
            mine: self._new_versions(op.outputs[slot], copies) for slot, mine in repeated.items()
        }
        optional = {slot for slot, declared in op.defn.slots.items() if declared.optional}
        new_outputs = {
            mine: outputs[mine]
            for slot, mine in repeated.items()
            if slot not in optional or self._is_needed(op.outputs[slot], wanted)
        }
        repeated = self.graph.op(kind, inputs, new_outputs, attrs, op.source, last=True)
        repeated.target = op.target
        return repeated

    def _new_versions(self, vars: list[Var], copies: dict[Var, Var]) -> list[Var]:
        for var in vars:
            copies[var] = self.graph.next_version(var, var.type, same_storage=False)
        return [copies[var] for var in vars]

    def _is_needed(self, vars: list[Var], wanted: Var) -> bool:
        """Whether an output is requested, or is internal to its kernel."""
        return wanted in vars or any(var not in self.timeline.spans for var in vars)

    def _rewire(self, var: Var, place: Mapping[Op, int]) -> None:
        """Redirect readers from the step on to the recomputed var."""
        step = self.timeline.again[var].step
        for op in self.graph.readers(var):
            if op in place and self.timeline.step_of[op] >= step:
                self.graph.rewire(op, var, self.copies[var])
