"""Memory of other allocation policies for the same lifetimes: peers of `pack`.

All but one work online as an allocator does, one request after another. At each step buffers that
ended before are freed, then those that begin are allocated. These are reimplementations of the
policies, not runs of the systems known for them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from compiler.pack import Lifetime

ALIGN = 64
"""Bytes that sizes are rounded up to, as `pack` does."""

MATCH = 16
"""Maximum size ratio of a token and its reuse, as in TVM."""

Range = tuple[int, int]
"""A size and an offset in bytes; sorted, the tightest fit comes first."""


def exact_size(lives: Sequence[Lifetime]) -> int:
    """Bytes if a buffer is reused only for a value of exactly its size.

    >>> exact_size([Lifetime(0, 1, 64), Lifetime(1, 2, 64), Lifetime(2, 3, 128)])
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


def token(lives: Sequence[Lifetime]) -> int:
    """Bytes of tokens: a value has an exclusive one, which is reused when it ends and may grow.

    The smallest free token that is large enough is taken, else the largest smaller one; as in TVM's
    StaticPlanBlockMemory, none more than `MATCH` times larger or smaller.

    >>> token([Lifetime(0, 1, 64), Lifetime(1, 2, 128)])
    128
    """
    free: list[Range] = []
    sizes: list[int] = []
    token_of: dict[int, int] = {}
    for begins, index in _requests(lives):
        if not begins:
            number = token_of.pop(index)
            insort(free, (sizes[number], number))
            continue
        size = _rounded(lives[index].size)
        place = _matching(free, size)
        number = free.pop(place)[1] if place is not None else len(sizes)
        sizes += [size] * (number == len(sizes))
        sizes[number] = max(sizes[number], size)
        token_of[index] = number
    return sum(sizes)


def _matching(free: Sequence[Range], size: int) -> int | None:
    """The index of the free token to take for a size."""
    place = bisect_left(free, (size, 0))
    if place < len(free) and free[place][0] <= size * MATCH:
        return place
    return place - 1 if place and free[place - 1][0] * MATCH >= size else None


def first_fit(lives: Sequence[Lifetime]) -> int:
    """Bytes of an allocator that splits the lowest free range that is large enough.

    >>> first_fit([Lifetime(0, 1, 128), Lifetime(0, 2, 64), Lifetime(1, 2, 64)])
    192
    """
    return _replayed(lives, _FirstFit())


def best_fit(lives: Sequence[Lifetime]) -> int:
    """Bytes of a caching allocator that splits the tightest free range that fits.

    Adjacent free ranges are merged; if none is large enough the heap grows, by what the free range
    at its end lacks.

    >>> best_fit([Lifetime(0, 1, 64), Lifetime(1, 2, 64), Lifetime(2, 3, 128)])
    128
    """
    return _replayed(lives, _Heap())


def greedy_by_size(lives: Sequence[Lifetime]) -> int:
    """Bytes of offline planning: the largest first, each in the tightest gap it fits.

    Pisarchyk and Lee, 2020 (arXiv 2001.03288), as in TFLite.

    >>> greedy_by_size([Lifetime(0, 2, 64), Lifetime(1, 3, 128), Lifetime(2, 4, 64)])
    192
    """
    laid: list[tuple[int, int, Lifetime]] = []
    for life in sorted(lives, key=lambda life: -life.size):
        size = _rounded(life.size)
        offset = _tightest(laid, life, size)
        insort(laid, (offset, offset + size, life), key=lambda each: each[:2])
    return max((top for _, top, _ in laid), default=0)


def _tightest(laid: Sequence[tuple[int, int, Lifetime]], life: Lifetime, size: int) -> int:
    """The offset of the smallest gap that fits a size during a lifetime, or of the free end."""
    end, gaps = 0, list[Range]()
    for low, high, other in laid:
        if other.start < life.stop and life.start < other.stop:
            gaps += [(low - end, end)] if low - end >= size else []
            end = max(end, high)
    return min(gaps)[1] if gaps else end


POLICIES: Mapping[str, Callable[[Sequence[Lifetime]], int]] = {
    "exact": exact_size,
    "token": token,
    "first": first_fit,
    "best": best_fit,
    "by size": greedy_by_size,
}
"""Every policy by its name in a table."""


def _replayed(lives: Sequence[Lifetime], heap: _Heap) -> int:
    """The final size of a heap."""
    offsets: dict[int, int] = {}
    for begins, index in _requests(lives):
        size = _rounded(lives[index].size)
        if begins:
            offsets[index] = heap.take(size)
        else:
            heap.give(offsets.pop(index), size)
    return heap.end


def _requests(lives: Sequence[Lifetime]) -> Iterator[tuple[bool, int]]:
    """(begins, life) in order of time: at one step frees come before allocations."""
    indices = [index for index, life in enumerate(lives) if life.size]
    events = [(lives[i].stop, False, i) for i in indices] + [
        (lives[i].start, True, i) for i in indices
    ]
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
        chosen = self._chosen(size)
        if chosen is None:
            return self._grow(size)
        block, offset = chosen
        self._drop(offset, block)
        if block > size:
            self._keep(offset + size, block - size)
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

    def _chosen(self, size: int) -> Range | None:
        place = bisect_left(self._by_size, (size, 0))
        return self._by_size[place] if place < len(self._by_size) else None

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


class _FirstFit(_Heap):
    """The same, with first-fit selection of the free range."""

    def _chosen(self, size: int) -> Range | None:
        fitting = (block for block in self._by_size if block[0] >= size)
        return min(fitting, key=lambda each: each[1], default=None)
