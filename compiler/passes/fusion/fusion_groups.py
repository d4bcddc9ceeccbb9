"""Ops that will run together, and which of them wait for others: for passes that join kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import networkx as nx

from compiler.ir.analysis.liveness import kernels
from compiler.ir.graph import Graph, Op


@dataclass(eq=False)
class Unit:
    """Ops that run together, in order; `parts` are those of a launch that are alike."""

    ops: list[Op]
    parts: list[list[Op]] = field(default_factory=list[list[Op]])


class Units:
    """The units of a graph, which is not edited while they are joined."""

    def __init__(self, g: Graph) -> None:
        self.graph = g
        self.place = {op: index for index, op in enumerate(g.ops())}
        self.of = {op: unit for unit in map(Unit, kernels(g)) for op in unit.ops}
        self._waits = {op: g.predecessors(op) for op in self.place}

    def all(self) -> list[Unit]:
        """Every unit, by its first op."""
        return list(dict.fromkeys(self.of.values()))

    def before(self, unit: Unit) -> list[Unit]:
        """Those that a unit waits for."""
        waits = dict.fromkeys(self.of[each] for op in unit.ops for each in self._waits[op])
        return [each for each in waits if each is not unit]

    def depend(self, units: Sequence[Unit]) -> bool:
        """True where one of the units waits for another by way of a third."""
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
        """One unit instead of several; with `parts`, their ops one part after the other."""
        made = Unit([], [each.ops for each in parts])
        ops = [op for unit in units for op in unit.ops]
        made.ops = ops if made.parts else sorted(ops, key=self.place.__getitem__)
        self.of |= dict.fromkeys(made.ops, made)
        return made

    def levels(self, units: Sequence[Unit]) -> list[list[Unit]]:
        """The units in groups in which none waits for another, the groups in order."""
        mine, height = set(units), dict[Unit, int]()
        for unit in self.in_order():
            below = [height[each] + (each in mine) for each in self.before(unit)]
            height[unit] = max(below, default=0)
        found: dict[int, list[Unit]] = {}
        for unit in units:
            found.setdefault(height[unit], []).append(unit)
        return [found[level] for level in sorted(found)]

    def in_order(self) -> list[Unit]:
        """All units, each behind those it waits for, else by their last op."""
        waits: nx.DiGraph[Unit] = nx.DiGraph()
        waits.add_nodes_from(self.all())
        waits.add_edges_from((each, unit) for unit in self.all() for each in self.before(unit))
        return list(nx.lexicographical_topological_sort(waits, key=self._last))

    def _last(self, unit: Unit) -> int:
        return max(self.place[op] for op in unit.ops)
