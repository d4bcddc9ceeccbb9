"""Fusion groups and their dependencies, for passes that merge kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import networkx as nx

from compiler.ir.analysis.liveness import kernels
from compiler.ir.graph import Graph, Op
from compiler.support.dataclass import dataclass


@dataclass(eq=False)
class FusionGroup:
    """Ops of one kernel, in order; `parts` are the structurally equal parts of a launch."""

    ops: list[Op]
    parts: list[list[Op]] = field(default_factory=list[list[Op]])


class FusionGroups:
    """The fusion groups of a graph, which is not edited while they are merged."""

    def __init__(self, g: Graph) -> None:
        self.graph = g
        self.place = {op: index for index, op in enumerate(g.ops())}
        self.of = {op: group for group in map(FusionGroup, kernels(g)) for op in group.ops}
        self._waits = {op: g.predecessors(op) for op in self.place}

    def all(self) -> list[FusionGroup]:
        """Return every group, in order of its first op."""
        return list(dict.fromkeys(self.of.values()))

    def before(self, group: FusionGroup) -> list[FusionGroup]:
        """Return the groups that a group depends on."""
        waits = dict.fromkeys(
            self.of[predecessor] for op in group.ops for predecessor in self._waits[op]
        )
        return [predecessor for predecessor in waits if predecessor is not group]

    def depend(self, groups: Sequence[FusionGroup]) -> bool:
        """Whether one of the groups depends on another via a third group."""
        first = min(self.place[op] for group in groups for op in group.ops)
        pending = [
            predecessor
            for group in groups
            for predecessor in self.before(group)
            if predecessor not in groups
        ]
        seen = set[FusionGroup]()
        while pending:
            group = pending.pop()
            if group in seen or self._last(group) < first:
                continue
            seen.add(group)
            before = self.before(group)
            if any(predecessor in groups for predecessor in before):
                return True
            pending += before
        return False

    def merge(
        self, groups: Sequence[FusionGroup], parts: Iterable[FusionGroup] = ()
    ) -> FusionGroup:
        """Merge groups into one; with `parts`, their ops are concatenated part by part."""
        merged = FusionGroup([], [part.ops for part in parts])
        ops = [op for group in groups for op in group.ops]
        merged.ops = ops if merged.parts else sorted(ops, key=self.place.__getitem__)
        self.of |= dict.fromkeys(merged.ops, merged)
        return merged

    def levels(self, groups: Sequence[FusionGroup]) -> list[list[FusionGroup]]:
        """Return the groups in levels of independent groups, the levels in topological order."""
        members, height = set(groups), dict[FusionGroup, int]()
        for group in self.in_order():
            below = [
                height[predecessor] + (predecessor in members) for predecessor in self.before(group)
            ]
            height[group] = max(below, default=0)
        by_level: dict[int, list[FusionGroup]] = {}
        for group in groups:
            by_level.setdefault(height[group], []).append(group)
        return [by_level[level] for level in sorted(by_level)]

    def in_order(self) -> list[FusionGroup]:
        """Return all groups in topological order, ties by their last op."""
        waits: nx.DiGraph[FusionGroup] = nx.DiGraph()
        waits.add_nodes_from(self.all())
        waits.add_edges_from(
            (predecessor, group) for group in self.all() for predecessor in self.before(group)
        )
        return list(nx.lexicographical_topological_sort(waits, key=self._last))

    def _last(self, group: FusionGroup) -> int:
        return max(self.place[op] for op in group.ops)
