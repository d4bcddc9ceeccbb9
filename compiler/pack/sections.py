"""Sections: the steps that matter to a search, and sets of blocks as bits of one integer.

A step whose blocks are all live in a neighbouring step adds no constraint, so only locally maximal
steps are kept: the sections. Sets of blocks are integers, bit n for block n, because a search asks
thousands of times a second which unplaced blocks lie between two sections.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import reduce
from math import gcd

from compiler.pack.life import PackedLife
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Sections:
    """Blocks over sections: block n has `sizes[n]` bytes in the half-open range `spans[n]`.

    `live[s]` is the set of blocks in section s and `totals[s]` the sum of their sizes; `after[s]`
    are the blocks that begin at section s or later, `before[s]` those that end there or earlier.
    All offsets may be restricted to multiples of `unit`.
    """

    sizes: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    live: tuple[int, ...]
    after: tuple[int, ...]
    before: tuple[int, ...]
    totals: tuple[int, ...]

    @staticmethod
    def of(blocks: Sequence[PackedLife]) -> Sections:
        """Return the sections of some blocks: the steps after which one ends."""
        boundaries = sorted({block.last - 1 for block in blocks})
        spans = [
            (bisect_left(boundaries, b.first), bisect_left(boundaries, b.last)) for b in blocks
        ]
        starts, stops = [[span[end] for span in spans] for end in (0, 1)]
        after = _running_union(_sets(starts, len(boundaries))[::-1])[::-1]
        before = _running_union(_sets(stops, len(boundaries)))
        everything = (1 << len(blocks)) - 1
        live = [everything & ~after[s + 1] & ~before[s] for s in range(len(boundaries))]
        totals = [sum(blocks[n].size for n in members(blocks_live)) for blocks_live in live]
        sizes = tuple(block.size for block in blocks)
        return Sections(
            sizes, tuple(spans), tuple(live), tuple(after), tuple(before), tuple(totals)
        )

    @property
    def unit(self) -> int:
        """Greatest common divisor of all sizes, in bytes."""
        return reduce(gcd, self.sizes, 0)

    def crosses(self, boundary: int) -> int:
        """Return the blocks in the sections on both sides of a boundary; boundary b precedes
        section b.

        >>> sections = Sections.of([PackedLife(0, 64, 0, 1, 64), PackedLife(1, 64, 1, 2, 64)])
        >>> sections.crosses(1)
        0
        """
        return self.live[boundary - 1] & self.live[boundary]


def members(set: int) -> Iterator[int]:
    """Yield the indices of the bits of a set.

    >>> list(members(0b1101))
    [0, 2, 3]
    """
    while set:
        lowest = set & -set
        yield lowest.bit_length() - 1
        set ^= lowest


def _sets(positions: Sequence[int], count: int) -> list[int]:
    """Return, for each section and the end, the set of blocks whose position it is."""
    sets = [0] * (count + 1)
    for number, position in enumerate(positions):
        sets[position] |= 1 << number
    return sets


def _running_union(sets: Sequence[int]) -> list[int]:
    """Return the running union of the sets.

    >>> _running_union([1, 4, 2])
    [1, 5, 7]
    """
    unions, union = list[int](), 0
    for members_of_set in sets:
        union |= members_of_set
        unions.append(union)
    return unions
