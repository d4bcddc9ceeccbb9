"""Disjoint sets (union-find): Tarjan, "Efficiency of a Good But Not Linear Set Union Algorithm"."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

__all__ = ["UnionFind"]


class UnionFind:
    """Disjoint sets of elements; at first each element is a set of its own.

    >>> sets = UnionFind(["a", "b", "c"])
    >>> sets.union("a", "b")
    >>> sets.is_connected("a", "b"), sets.is_connected("a", "c"), sets.find("d")
    (True, False, -1)
    """

    def __init__(self, elementes: Iterable[Hashable] | None = None) -> None:
        elements = list(elementes or ())
        self._parents = list(range(len(elements)))
        self._index = {element: index for index, element in enumerate(elements)}

    def find(self, x: Hashable) -> int:
        """The number of the set of an element; -1 for an unknown element."""
        if x not in self._index:
            return -1
        index = self._index[x]
        while index != self._parents[index]:
            self._parents[index] = self._parents[self._parents[index]]
            index = self._parents[index]
        return index

    def union(self, x: Hashable, y: Hashable) -> None:
        """Merge the sets of two elements."""
        self._parents[self.find(x)] = self.find(y)

    def is_connected(self, x: Hashable, y: Hashable) -> bool:
        """Whether two elements are in one set."""
        return self.find(x) == self.find(y)
