"""Choice of values to evict and recompute, so that fewer bytes are live at once.

A value that is read, idle for a while, and read again may be evicted in between if a cheap op can
recompute it from values that are available. This module only computes over the steps of a fixed
schedule; `compiler.passes.memory.recompute` rewrites the graph.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from compiler.ir.analysis.liveness import kernels, lives
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array
from compiler.passes.memory.schedules import nbytes
from compiler.support.dataclass import dataclass

DEEPEST = 24
"""Maximum depth of recomputations that depend on each other."""


@dataclass(frozen=True)
class Recipe:
    """Ops that recompute a var, in order, and their external inputs."""

    ops: tuple[Op, ...]
    reads: tuple[Var, ...]


@dataclass(frozen=True)
class SecondLife:
    """The second live range of a var: recomputed just before the kernel at `step`, live to `until`.

    Both are equal if its memory is reused in place by the reader.
    """

    step: int
    until: int


@dataclass
class Candidate:
    """Changes of a candidate: vars to recompute, and shortened or extended first live ranges."""

    again: dict[Var, SecondLife] = field(default_factory=dict[Var, SecondLife])
    ends: dict[Var, int] = field(default_factory=dict[Var, int])
    cost: int = 0


class Timeline:
    """Live ranges in a graph's schedule, and the vars that may be recomputed.

    `again` are the vars chosen so far; `live` the live bytes of each step. Unknown sizes count as
    `typical`.
    """

    def __init__(self, g: Graph, typical: int) -> None:
        self.graph = g
        self.steps = kernels(g)
        self.spans = lives(g)
        self.sizes = {var: nbytes(var.type, typical) for var in self.spans}
        self.again: dict[Var, SecondLife] = {}
        self.ends: dict[Var, int] = {}
        self.uses: dict[Var, list[int]] = {}
        for step, ops in enumerate(self.steps):
            for var in dict.fromkeys(var for op in ops for var in op.needs_data()):
                self.uses.setdefault(var, []).append(step)
        self.step_of = {op: step for step, ops in enumerate(self.steps) for op in ops}
        self.kept = set(g.results)
        self.live = np.zeros(len(self.steps) + 1, np.int64)
        for var, (start, stop) in self.spans.items():
            self.live[start:stop] += self.sizes[var]
        self._recipes: dict[Var, Recipe | None] = {}

    @property
    def peak(self) -> int:
        """The maximum live bytes of a step."""
        return int(self.live.max(initial=0))

    def peak_step(self) -> int:
        """Return the first step with the maximum live bytes."""
        return int(self.live.argmax())

    def recipe(self, var: Var) -> Recipe | None:
        """Return how to recompute a var; None if that is not cheap, or not reproducible."""
        if var not in self._recipes:
            self._recipes[var] = self._find_recipe(var)
        return self._recipes[var]

    def _find_recipe(self, var: Var) -> Recipe | None:
        producer = self.graph.producer(var)
        if producer is None or var not in self.spans or var in self.kept or not _is_evictable(var):
            return None
        readers = self.graph.readers(var)
        if self.graph.overwriter(var) is not None or any(op.body is not None for op in readers):
            return None
        ops = _kernel_slice(self.graph, producer)
        if not all(_may_repeat(op, var) for op in ops):
            return None
        computed = {written for op in ops for written in op.writes()}
        reads = dict.fromkeys(source for op in ops for source in _sources(op))
        return Recipe(tuple(ops), tuple(source for source in reads if source not in computed))

    # ---- candidates ----

    def evict_best(self) -> bool:
        """Apply the best candidate that reduces the live bytes at the peak; return False if there
        is none.

        The best one saves most bytes per byte recomputed.
        """
        full = self.peak_step()
        candidates = [
            (var, self._candidate(var, full)) for var in self.spans if self._idle(var, full)
        ]
        rated = [
            (self._rate(evictable, full), i, evictable)
            for i, (_, evictable) in enumerate(candidates)
            if evictable
        ]
        for rate, _, choice in sorted(rated, key=lambda each: (-each[0], each[1])):
            change = self._change(choice)
            if rate > 0 and (self.live + change).max() <= self.peak:
                self._apply(choice, change)
                return True
        return False

    def _idle(self, var: Var, step: int) -> bool:
        """Whether a var is live but unused at a step, was defined before, and is read again
        later.
        """
        start, stop = self.spans[var][0], self._end(Candidate(), var)
        idle = start < step < stop - 1 and step not in self.uses.get(var, ())
        return idle and var not in self.again and self.recipe(var) is not None

    def _candidate(self, var: Var, full: int) -> Candidate | None:
        """Return the candidate that evicts a var around a step and recomputes it before its next
        use.
        """
        uses = self.uses.get(var, [])
        after = [step for step in uses if step > full]
        if not after:
            return None
        choice = Candidate()
        before = max((step for step in uses if step < full), default=self.spans[var][0])
        choice.ends[var] = before + 1
        possible = self._recompute(choice, var, after[0], uses[-1] + 1, 0)
        return choice if possible else None

    def _recompute(self, choice: Candidate, var: Var, step: int, until: int, depth: int) -> bool:
        """Recompute a var at a step from values that are available or can be recomputed too."""
        recipe = self.recipe(var)
        if recipe is None or depth > DEEPEST:
            return False
        if var not in self.again and var not in choice.again:
            choice.cost += self._cost(recipe)
        choice.again[var] = SecondLife(step, until)
        room = self.sizes[var]
        for source in recipe.reads:
            passes = self.sizes.get(source) == room and not self._is_live(choice, source, step)
            room = 0 if passes else room
            if not self._make_available(choice, source, step, step + (not passes), depth):
                return False
        return True

    def _make_available(
        self, choice: Candidate, var: Var, step: int, until: int, depth: int
    ) -> bool:
        """Whether a var is available at a step, extending the candidate if necessary.

        A value that is recomputed for this purpose lives to `until`.
        """
        if var.role == "feed":
            return True
        if not self._is_intact(var, step):
            return False
        if var.role == "param" or (var in self.kept and var.overwrites is None):
            return True
        chosen = choice.again.get(var) or self.again.get(var)
        start, stop = self.spans[var][0], self._end(choice, var)
        if start < step < stop:
            return True
        if chosen is not None:
            last = max(chosen.until, step + 1)
            if chosen.step <= step:
                choice.again[var] = SecondLife(chosen.step, last)
                return True
            return self._recompute(choice, var, step, last, depth + 1)
        trial = Candidate(dict(choice.again), dict(choice.ends), choice.cost)
        if self._recompute(trial, var, step, until, depth + 1):
            choice.again, choice.ends, choice.cost = trial.again, trial.ends, trial.cost
            return True
        return self._extend_life(choice, var, step)

    def _extend_life(self, choice: Candidate, var: Var, step: int) -> bool:
        """Extend the live range of a value that no cheap op recomputes."""
        if var not in self.spans or self.spans[var][0] >= step:
            return False
        choice.ends[var] = step + 1
        return True

    def _is_intact(self, var: Var, step: int) -> bool:
        """Whether a var is not overwritten before a step."""
        over = self.graph.overwriter(var)
        writer = self.graph.producer(over) if over is not None else None
        return writer is None or self.step_of[writer] >= step

    def _end(self, choice: Candidate, var: Var) -> int:
        """Return the end of the first live range of a var."""
        return choice.ends.get(var, self.ends.get(var, self.spans[var][1]))

    def _cost(self, recipe: Recipe) -> int:
        computed = {var for op in recipe.ops for var in op.writes()}
        return sum(self.sizes.get(var, 0) for var in (*recipe.reads, *computed)) + 1

    # ---- effect of a candidate ----

    def _rate(self, choice: Candidate, full: int) -> float:
        """Return the bytes saved at a step per byte recomputed."""
        moved, now = list(dict.fromkeys([*choice.again, *choice.ends])), Candidate()
        before = sum(self.sizes[var] for var in moved if self._is_live(now, var, full))
        after = sum(self.sizes[var] for var in moved if self._is_live(choice, var, full))
        return (before - after) / max(choice.cost, 1)

    def _is_live(self, choice: Candidate, var: Var, step: int) -> bool:
        return any(start <= step < stop for start, stop in self._lives(choice, var))

    def _lives(self, choice: Candidate, var: Var) -> list[tuple[int, int]]:
        """Return the one or two live ranges of a var under a candidate."""
        first = (self.spans[var][0], self._end(choice, var))
        again = choice.again.get(var) or self.again.get(var)
        return [first] if again is None else [first, (again.step, again.until)]

    def _change(self, choice: Candidate) -> Array:
        change = np.zeros_like(self.live)
        for var in dict.fromkeys([*choice.again, *choice.ends]):
            for sign, candidate in ((-1, Candidate()), (1, choice)):
                for start, stop in self._lives(candidate, var):
                    change[start:stop] += sign * self.sizes[var]
        return change

    def _apply(self, choice: Candidate, change: Array) -> None:
        self.live = self.live + change
        self.again |= choice.again
        self.ends |= choice.ends
        for var, again in choice.again.items():
            recipe = self.recipe(var)
            for read in recipe.reads if recipe is not None else ():
                insort(self.uses.setdefault(read, []), again.step)


def _is_evictable(var: Var) -> bool:
    """Whether a var is a temporary of known size with separate storage."""
    return var.overwrites is None and var.role == "temp" and not var.type.is_open


def _may_repeat(op: Op, wanted: Var) -> bool:
    """Whether an op is deterministic and cheap."""
    written = [var for var in op.writes() if var is not wanted]
    alone = all(var.overwrites is None and var.role == "temp" for var in written)
    if op.body is not None or op.defn.has_effects:
        return False
    again = op.defn.again()
    if again is not None and wanted in op.writes():
        is_output = any(wanted in op.outputs.get(slot, ()) for slot in again.outputs)
        return is_output and all(
            slot in {**op.outputs, **op.inputs} for slot in again.inputs.values()
        )
    return op.defn.is_cheap and alone and not op.defn.is_random


def _sources(op: Op) -> list[Var]:
    """Return the vars that must be available to repeat an op."""
    again = op.defn.again()
    if again is None:
        return op.needs_data()
    slots: Mapping[str, Sequence[Var]] = {**op.outputs, **op.inputs}
    return [var for slot in again.inputs.values() for var in slots.get(slot, ())]


def _kernel_slice(g: Graph, op: Op) -> list[Op]:
    """Return an op and the ops of its kernel that it depends on, in order."""
    if op.kernel is None:
        return [op]
    wanted, pending = dict.fromkeys([op]), [op]
    while pending:
        before = [g.producer(var) for var in pending.pop().needs_data()]
        new = [
            producer for producer in before if producer is not None and producer.kernel == op.kernel
        ]
        pending += [producer for producer in new if producer not in wanted]
        wanted |= dict.fromkeys(new)
    return sorted(wanted, key=lambda each: each.position)
