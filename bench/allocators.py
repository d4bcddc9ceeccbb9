"""What other ways of giving out memory would need for the same lives: peers for `pack`.

Both work as an allocator does, one request after another without knowing what comes. At each step
what ended before it is given back, then what begins with it is given memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from compiler.pack import Life

ALIGN = 64
"""Bytes that sizes are rounded up to, as `pack` does."""

Range = tuple[int, int]
"""A size and an offset in bytes; sorted, the tightest fit comes first."""


def exact_size(lives: Sequence[Life]) -> int:
    """Bytes taken where a buffer is used again only for a value of exactly its size.

    >>> exact_size([Life(0, 1, 64), Life(1, 2, 64), Life(2, 3, 128)])
    192
    """
    free: Counter[int] = Counter()
    taken = 0
    for begins, index in _requests(lives):
        size = _rounded(lives[index].size)
        if not begins:
            free[size] += 1
        elif free[size]:
            free[size] -= 1
        else:
            taken += size
    return taken


def best_fit(lives: Sequence[Life]) -> int:
    """Bytes taken by an allocator that keeps what is freed and splits the tightest range that fits.

    Neighbouring free ranges become one again; where none is large enough the heap grows, by what
    the free range at its end falls short.

    >>> best_fit([Life(0, 1, 64), Life(1, 2, 64), Life(2, 3, 128)])
    128
    """
    heap = _Heap()
    offsets: dict[int, int] = {}
    for begins, index in _requests(lives):
        size = _rounded(lives[index].size)
        if begins:
            offsets[index] = heap.take(size)
        else:
            heap.give(offsets.pop(index), size)
    return heap.end


def _requests(lives: Sequence[Life]) -> Iterator[tuple[bool, int]]:
    """(begins, life) in the order of time: at one step what ended is given back first."""
    held = [index for index, life in enumerate(lives) if life.size]
    events = [(lives[i].stop, False, i) for i in held] + [(lives[i].start, True, i) for i in held]
    return ((begins, index) for _, begins, index in sorted(events))


def _rounded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


class _Heap:
    """Free ranges of a heap that grows at its end, by size and by offset."""

    def __init__(self) -> None:
        self.end = 0
        self._by_size: list[Range] = []
        self._by_start: dict[int, int] = {}
        self._by_stop: dict[int, int] = {}

    def take(self, size: int) -> int:
        place = bisect_left(self._by_size, (size, 0))
        if place == len(self._by_size):
            return self._grow(size)
        found, offset = self._by_size[place]
        self._drop(offset, found)
        if found > size:
            self._keep(offset + size, found - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        if offset in self._by_stop:
            before = self._by_stop[offset]
            self._drop(offset - before, before)
            offset, size = offset - before, size + before
        if offset + size in self._by_start:
            behind = self._by_start[offset + size]
            self._drop(offset + size, behind)
            size += behind
        self._keep(offset, size)

    def _grow(self, size: int) -> int:
        last = self._by_stop.get(self.end, 0)
        offset = self.end - last
        if last:
            self._drop(offset, last)
        self.end = offset + size
        return offset

    def _keep(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._by_start[offset] = self._by_stop[offset + size] = size

    def _drop(self, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._by_start[offset], self._by_stop[offset + size]
