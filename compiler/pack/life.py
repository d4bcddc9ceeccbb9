"""Inputs and results of packing: live ranges, packings, and the lower bound of their height."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from compiler.support.dataclass import dataclass


class PackError(ValueError):
    """Invalid live ranges, or a packing that breaks a rule."""


@dataclass(frozen=True)
class Lifetime:
    """A value of `size` bytes that is live in the steps `start`, …, `stop - 1`."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Packing:
    """A byte offset for each life, in an arena of `height` bytes.

    `bound` is the largest live sum of the aligned sizes, a lower bound of the height. If the height
    is above it, `note` is the reason why the search stopped there.
    """

    offsets: tuple[int, ...]
    height: int
    bound: int
    note: str = ""

    @property
    def ratio(self) -> float:
        """Height ÷ bound: 1.0 is optimal; an empty arena has ratio 1.0."""
        return self.height / self.bound if self.bound else 1.0


@dataclass(frozen=True, slots=True)
class PackedLife:
    """A life as it is packed, with steps renumbered so that at least one begins at each.

    `index` is its index among the lives, `size` aligned bytes, `[first, last)` its steps, and
    `pressure` the largest live sum within them.
    """

    index: int
    size: int
    first: int
    last: int
    pressure: int


def lower_bound(lives: Sequence[Lifetime], align: int = 64) -> int:
    """Return the largest sum of aligned sizes live at one step, in bytes.

    Raises PackError as `pack` does.

    >>> lower_bound([Lifetime(0, 2, 100), Lifetime(1, 3, 64), Lifetime(2, 4, 64)])
    192
    """
    expect_packable(lives, align)
    return max((block.pressure for block in blocks_of(lives, align)), default=0)


def expect_packable(lives: Sequence[Lifetime], align: int) -> None:
    """Raise PackError for lives that end before they begin, negative sizes, or a zero alignment."""
    if align < 1:
        raise PackError(f"align must be at least 1 byte, got {align}")
    for index, life in enumerate(lives):
        if life.size < 0:
            raise PackError(f"life {index} must have 0 bytes or more, got {life.size}")
        if life.stop <= life.start:
            raise PackError(f"life {index} must stop after {life.start}, got stop {life.stop}")


def aligned(size: int, align: int) -> int:
    """Round a size up to a multiple of `align`.

    >>> aligned(65, 64)
    128
    """
    return -(-size // align) * align


def blocks_of(lives: Sequence[Lifetime], align: int) -> list[PackedLife]:
    """Return the non-empty lives as blocks; two share a step exactly if the lives do."""
    indices = [index for index, life in enumerate(lives) if life.size]
    starts = sorted({lives[index].start for index in indices})
    rank = {start: step for step, start in enumerate(starts)}
    spans = [(rank[lives[i].start], bisect_left(starts, lives[i].stop)) for i in indices]
    sizes = [aligned(lives[index].size, align) for index in indices]
    pressures = _pressures(_live_sums(spans, sizes, len(starts)), spans)
    return [
        PackedLife(index, size, first, last, pressure)
        for index, size, (first, last), pressure in zip(
            indices, sizes, spans, pressures, strict=True
        )
    ]


def height_of(blocks: Sequence[PackedLife], offsets: Sequence[int]) -> int:
    """Return the end of the highest block; 0 without blocks."""
    tops = (offset + block.size for block, offset in zip(blocks, offsets, strict=True))
    return max(tops, default=0)


def _live_sums(spans: Sequence[tuple[int, int]], sizes: Sequence[int], steps: int) -> list[int]:
    """Return the bytes live at each step."""
    change = [0] * (steps + 1)
    for (first, last), size in zip(spans, sizes, strict=True):
        change[first] += size
        change[last] -= size
    return list(accumulate(change[:-1]))


def _pressures(sums: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the largest of `sums` within each span, in one pass.

    `peaks` is a monotonic stack: the steps not exceeded by a later one so far, so the first of them
    inside a span that ends here is the highest.
    """
    ending: list[list[int]] = [[] for _ in sums]
    for number, (_, last) in enumerate(spans):
        ending[last - 1].append(number)
    pressures = [0] * len(spans)
    peaks: list[int] = []
    for step, live in enumerate(sums):
        while peaks and sums[peaks[-1]] <= live:
            peaks.pop()
        peaks.append(step)
        for number in ending[step]:
            pressures[number] = sums[peaks[bisect_left(peaks, spans[number][0])]]
    return pressures
