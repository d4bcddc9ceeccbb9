"""The steps that matter to a search, and sets of blocks as the bits of one integer.

A step whose blocks are all alive in its neighbour too asks for nothing of its own, so only the
fullest steps are kept: the sections. Sets of blocks are integers, bit n for block n, because a
search asks thousands of times a second which blocks are still to be laid between two sections.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

from compiler.pack.life import Block


@dataclass(frozen=True)
class Sections:
    """Blocks over sections: block n has `sizes[n]` bytes in the sections `spans[n]`, half-open.

    `live[s]` is the set of blocks in section s and `totals[s]` the sum of their sizes; `after[s]`
    are the blocks that begin at section s or later, `before[s]` those that end there or earlier.
    No offset needs to be other than a multiple of `unit`.
    """

    sizes: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    live: tuple[int, ...]
    after: tuple[int, ...]
    before: tuple[int, ...]
    totals: tuple[int, ...]

    @staticmethod
    def of(blocks: Sequence[Block]) -> Sections:
        """The sections of some blocks: the steps behind which one ends."""
        kept = sorted({block.last - 1 for block in blocks})
        spans = [(bisect_left(kept, b.first), bisect_left(kept, b.last)) for b in blocks]
        starts, stops = [[span[side] for span in spans] for side in (0, 1)]
        after = _joined(_sets(starts, len(kept))[::-1])[::-1]
        before = _joined(_sets(stops, len(kept)))
        everything = (1 << len(blocks)) - 1
        live = [everything & ~after[s + 1] & ~before[s] for s in range(len(kept))]
        totals = [sum(blocks[n].size for n in members(each)) for each in live]
        sizes = tuple(block.size for block in blocks)
        return Sections(
            sizes, tuple(spans), tuple(live), tuple(after), tuple(before), tuple(totals)
        )

    @property
    def unit(self) -> int:
        """The largest number of bytes that divides all sizes."""
        return reduce(gcd, self.sizes, 0)

    def crosses(self, boundary: int) -> int:
        """The blocks in the sections on both sides of a boundary; boundary b is before section b.

        >>> sections = Sections.of([Block(0, 64, 0, 1, 64), Block(1, 64, 1, 2, 64)])
        >>> sections.crosses(1)
        0
        """
        return self.live[boundary - 1] & self.live[boundary]


def members(set: int) -> Iterator[int]:
    """The numbers of the bits of a set.

    >>> list(members(0b1101))
    [0, 2, 3]
    """
    while set:
        lowest = set & -set
        yield lowest.bit_length() - 1
        set ^= lowest


def _sets(places: Sequence[int], count: int) -> list[int]:
    """For each section and the end, the blocks whose place it is."""
    sets = [0] * (count + 1)
    for number, place in enumerate(places):
        sets[place] |= 1 << number
    return sets


def _joined(sets: Sequence[int]) -> list[int]:
    """Each set with all those before it.

    >>> _joined([1, 4, 2])
    [1, 5, 7]
    """
    joined, seen = list[int](), 0
    for each in sets:
        seen |= each
        joined.append(seen)
    return joined
