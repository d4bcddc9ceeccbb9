"""Fusion groups and their dependencies, for passes that merge kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from compiler.ir.analysis.liveness import kernels
from compiler.ir.digraph import Digraph
from compiler.ir.graph import Graph, Op


@dataclass(eq=False)
class Unit:
    """Ops of one kernel, in order; `parts` are the structurally equal parts of a launch."""

    ops: list[Op]
    parts: list[list[Op]] = field(default_factory=list[list[Op]])


class Units:
    """The fusion groups of a graph, which is not edited while they are merged."""

    def __init__(self, g: Graph) -> None:
        self.graph = g
        self.place = {op: index for index, op in enumerate(g.ops())}
        self.of = {op: unit for unit in map(Unit, kernels(g)) for op in unit.ops}
        self._waits = {op: g.predecessors(op) for op in self.place}

    def all(self) -> list[Unit]:
        """Return every group, in order of its first op."""
        return list(dict.fromkeys(self.of.values()))

    def before(self, unit: Unit) -> list[Unit]:
        """Return the groups that a group depends on."""
        waits = dict.fromkeys(self.of[each] for op in unit.ops for each in self._waits[op])
        return [each for each in waits if each is not unit]

    def depend(self, units: Sequence[Unit]) -> bool:
        """Whether one of the groups depends on another via a third group."""
        first = min(self.place[op] for unit in units for op in unit.ops)
        pending = [each for unit in units for each in self.before(unit) if each not in units]
        seen = set[Unit]()
        while pending:
            unit = pending.pop()
            if unit in seen or self._last(unit) < first:
                continue
            seen.add(unit)
            before = self.before(unit)
            if any(each in units for each in before):
                return True
            pending += before
        return False

    def merge(self, units: Sequence[Unit], parts: Iterable[Unit] = ()) -> Unit:
        """Merge groups into one; with `parts`, their ops are concatenated part by part."""
        made = Unit([], [each.ops for each in parts])
        ops = [op for unit in units for op in unit.ops]
        made.ops = ops if made.parts else sorted(ops, key=self.place.__getitem__)
        self.of |= dict.fromkeys(made.ops, made)
        return made

    def levels(self, units: Sequence[Unit]) -> list[list[Unit]]:
        """Return the groups in levels of independent groups, the levels in topological order."""
        mine, height = set(units), dict[Unit, int]()
        for unit in self.in_order():
            below = [height[each] + (each in mine) for each in self.before(unit)]
            height[unit] = max(below, default=0)
        found: dict[int, list[Unit]] = {}
        for unit in units:
            found.setdefault(height[unit], []).append(unit)
        return [found[level] for level in sorted(found)]

    def in_order(self) -> list[Unit]:
        """Return all groups in topological order, ties by their last op."""
        pairs = ((each, unit) for unit in self.all() for each in self.before(unit))
        return Digraph(self.all(), pairs).topological_order(self._last)

    def _last(self, unit: Unit) -> int:
        return max(self.place[op] for op in unit.ops)
