"""A directed graph with nodes and edges in insertion order.

Replaces networkx, whose import takes longer than compiling most programs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

N = TypeVar("N")


class Digraph(Generic[N]):
    """A directed graph of hashable nodes, without parallel edges."""

    def __init__(self, nodes: Iterable[N] = (), edges: Iterable[tuple[N, N]] = ()) -> None:
        self._after: dict[N, dict[N, None]] = {}
        self._before: dict[N, dict[N, None]] = {}
        for node in nodes:
            self.add_node(node)
        self.add_edges(edges)

    def __contains__(self, node: object) -> bool:
        return node in self._after

    def __iter__(self) -> Iterator[N]:
        return iter(self._after)

    def add_node(self, node: N) -> None:
        """Add a node if it is not in the graph yet."""
        if node not in self._after:
            self._after[node], self._before[node] = {}, {}

    def add_edges(self, edges: Iterable[tuple[N, N]]) -> None:
        """Add edges, and their end nodes where missing."""
        for start, end in edges:
            self.add_node(start)
            self.add_node(end)
            self._after[start][end] = self._before[end][start] = None

    def remove_node(self, node: N) -> None:
        """Remove a node and its edges; KeyError if it is not in the graph."""
        for end in self._after.pop(node):
            self._before[end].pop(node, None)
        for start in self._before.pop(node):
            self._after.get(start, {}).pop(node, None)

    def remove_edge(self, start: N, end: N) -> None:
        """Remove an edge; KeyError if it is not in the graph."""
        del self._after[start][end], self._before[end][start]

    def lists(self) -> dict[N, list[N]]:
        """Return the adjacency lists: the successors of every node."""
        return {node: list(after) for node, after in self._after.items()}

    def has_edge(self, start: N, end: N) -> bool:
        """Return whether the graph has an edge from `start` to `end`."""
        return end in self._after.get(start, ())

    def successors(self, node: N) -> Iterator[N]:
        """Iterate over the successors of a node."""
        return iter(self._after[node])

    def predecessors(self, node: N) -> Iterator[N]:
        """Iterate over the predecessors of a node."""
        return iter(self._before[node])

    def degree(self, node: N) -> int:
        """Return the number of incoming and outgoing edges of a node."""
        return len(self._after[node]) + len(self._before[node])

    def out_degree(self, node: N) -> int:
        """Return the number of outgoing edges of a node."""
        return len(self._after[node])

    def component(self, node: N) -> set[N]:
        """Return the strongly connected component that contains a node."""
        return _reached(node, self.successors) & _reached(node, self.predecessors)

    def topological_order(self, key: Callable[[N], Any]) -> list[N]:
        """Return the nodes in topological order; ties are broken by `key`, then by insertion order.

        Raises ValueError if the graph has a cycle.
        """
        index = {node: number for number, node in enumerate(self._after)}
        waits = {node: len(before) for node, before in self._before.items()}
        ready = [(key(node), index[node], node) for node, count in waits.items() if not count]
        heapq.heapify(ready)
        found: list[N] = []
        while ready:
            node = heapq.heappop(ready)[2]
            found.append(node)
            for end in self._after[node]:
                waits[end] -= 1
                if not waits[end]:
                    heapq.heappush(ready, (key(end), index[end], end))
        if len(found) < len(waits):
            raise ValueError("the graph has a cycle")
        return found


def _reached(node: N, steps: Callable[[N], Iterator[N]]) -> set[N]:
    """Return all nodes reachable from a node along `steps`, the node included."""
    found, pending = {node}, [node]
    while pending:
        new = [each for each in steps(pending.pop()) if each not in found]
        found.update(new)
        pending += new
    return found
