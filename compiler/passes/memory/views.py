"""Choice of values to store as sub-buffers (views) of the value that they are part of.

A part of an existing value is a free view. An input of a concat may be written directly into the
concatenated value; then the memory of that value is live from its first part on. That pays off for
parts that are computed shortly before, but not for early ones, so for each concat the latest parts
are chosen, as many as minimise the live bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.analysis.liveness import InPlaceRules, kernels, lives
from compiler.ir.analysis.memory_writes import shared
from compiler.ir.analysis.placement import device_vars
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.slots import Share
from compiler.ir.types import Array
from compiler.passes.memory.schedules import nbytes

_ANY = Share(("", 0), ("", 0))

Parts = dict[Var, tuple[Var, Share]]
"""For a part, its containing var, and which share of it the part is."""


def chosen_parts(g: Graph, typical: int) -> list[Parts]:
    """Return the plans to try: all profitable parts, those of existing values, and none.

    Mandatory parts are in all of them.
    """
    chooser = _Chooser(g, typical)
    mandatory = chooser.mandatory()
    views = chooser.views(mandatory)
    joined = chooser.joined(views)
    tries = [joined] if joined != views else []
    return [*tries, views, mandatory] if views != mandatory else [*tries, mandatory]


class _Chooser:
    """The live ranges of a graph's vars, and the live bytes of each step."""

    def __init__(self, g: Graph, typical: int) -> None:
        self.graph = g
        self.steps = kernels(g)
        self.live_ranges = lives(g)
        self.on_device = device_vars(g)
        self.sizes = {var: nbytes(var.type, typical) for var in self.live_ranges}
        self.live = np.zeros(len(self.steps) + 2, np.int64)
        for var, (start, stop) in self.live_ranges.items():
            self.live[start:stop] += self.sizes[var]

    def mandatory(self) -> Parts:
        """Return mandatory parts, at any memory cost: those of buckets."""
        parts = Parts()
        for whole, part, share in self._pairs():
            if share.stays:
                parts.setdefault(part, (whole, share))
        return parts

    def views(self, mandatory: Parts) -> Parts:
        """Return views of existing values that do not keep a larger value live."""
        parts = Parts(mandatory)
        for whole, part, share in self._pairs():
            early = self._start(whole) <= self._start(part)
            longer = self._stop(part) > self._stop(whole)
            fits = not longer or self.sizes[part] == self.sizes[whole]
            if early and fits and part not in parts:
                parts[part] = (whole, share)
        return parts

    def joined(self, views: Parts) -> Parts:
        """Extend `views` by parts computed before their containing value, and what they
        overwrite.
        """
        parts = Parts(views)
        joins: dict[Var, list[tuple[Var, Share]]] = {}
        for whole, part, share in self._pairs():
            if self._start(part) < self._start(whole) and part not in parts:
                joins.setdefault(whole, []).append((part, share))
        for whole, pairs in joins.items():
            for part, share in self._profitable_parts(whole, pairs):
                parts.setdefault(part, (whole, share))
        self._add_overwritten(parts)
        return parts

    def _pairs(self) -> list[tuple[Var, Var, Share]]:
        """Return all pairs of a containing value and a part that both have memory."""
        pairs = [pair for ops in self.steps for op in ops for pair in shared(op)]
        free = [pair for pair in pairs if all(self._is_free(var, pair[2]) for var in pair[:2])]
        results = set(self.graph.results)
        return [pair for pair in free if pair[1] not in results]

    def _is_free(self, var: Var, share: Share = _ANY) -> bool:
        """Whether a var may be moved; on a device only if its part is aligned, as the whole is."""
        alone = var.overwrites is None and self.graph.overwriter(var) is None
        aligned = share.stays or (share is not _ANY and share.size is None)
        here = var in self.live_ranges and (aligned or var not in self.on_device)
        return here and alone and not var.type.is_open

    def _start(self, var: Var) -> int:
        return self.live_ranges[var][0]

    def _stop(self, var: Var) -> int:
        return self.live_ranges[var][1]

    def _profitable_parts(
        self, whole: Var, pairs: list[tuple[Var, Share]]
    ) -> list[tuple[Var, Share]]:
        """Return the latest parts, as many as minimise the live bytes; more if equal."""
        ordered = sorted(pairs, key=lambda pair: -self._start(pair[0]))
        first, last = self._start(ordered[-1][0]), self._start(whole) + 1
        best, fewest = 0, int(self.live[first:last].max())
        change = np.zeros(last - first, np.int64)
        taken = self._start(whole)
        for count, (part, _) in enumerate(ordered, 1):
            start, stop = self.live_ranges[part]
            change[start - first : taken - first] += self.sizes[whole]
            change[start - first : min(stop, last) - first] -= self.sizes[part]
            taken = min(taken, start)
            peak = int((self.live[first:last] + change).max())
            if peak <= fewest:
                best, fewest = count, peak
        self._account_for(whole, [part for part, _ in ordered[:best]])
        return ordered[:best]

    def _account_for(self, whole: Var, parts: Sequence[Var]) -> None:
        """PlanCost for a containing value that is live from its first part on."""
        if not parts:
            return
        first = min(map(self._start, parts))
        _add(self.live, first, self._start(whole), self.sizes[whole])
        for part in parts:
            start, stop = self.live_ranges[part]
            _add(self.live, start, min(stop, self._stop(whole)), -self.sizes[part])

    def _add_overwritten(self, found: Parts) -> None:
        """Place what a planned part overwrites there too."""
        results = set(self.graph.results)
        for step in range(len(self.steps) - 1, -1, -1):
            ops = self.steps[step]
            written = (var for op in ops for var in op.writes() if var in found)
            for var in (var for var in written if self._start(found[var][0]) > step):
                old = next((o for o in self._overwritten(ops, step, var) if o not in results), None)
                if old is not None and old not in found:
                    found[old] = (var, Share(("", 0), ("", 0)))

    def _overwritten(self, ops: Sequence[Op], step: int, var: Var) -> list[Var]:
        """Return the dying inputs of a kernel that an output could overwrite."""
        read = dict.fromkeys(v for op in ops for v in op.needs_data() if self._is_free(v))
        rules = InPlaceRules(ops, self.live_ranges)
        return [
            old
            for old in read
            if self._start(old) < step == self._stop(old) - 1
            and old.type.nbytes == var.type.nbytes
            and rules.allow(old, var)
        ]


def _add(live: Array, start: int, stop: int, size: int) -> None:
    if start < stop:
        live[start:stop] += size
