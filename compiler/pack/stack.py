"""Reuse of a packing for other sizes: which block lies on which, repacked in one sweep.

Live ranges are the same for every batch size, and most sizes grow in proportion. As long as blocks
lie on the same blocks, no search is needed: each begins where the highest of those right below it
ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.pack.life import Lifetime, Packing, aligned, blocks_of
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Stack:
    """Lives from the bottom up, each with those that lie right below it in some step."""

    below: tuple[tuple[int, tuple[int, ...]], ...]

    @staticmethod
    def of(lives: Sequence[Lifetime], packing: Packing) -> Stack:
        """Return which life lies on which in a packing; empty lives are omitted.

        >>> lives = [Lifetime(0, 2, 64), Lifetime(1, 3, 64)]
        >>> Stack.of(lives, Packing((0, 64), 128, 128)).below
        ((0, ()), (1, (0,)))
        """
        blocks = sorted(blocks_of(lives, 1), key=lambda block: packing.offsets[block.index])
        tops = [-1] * max((block.last for block in blocks), default=0)
        below: list[tuple[int, tuple[int, ...]]] = []
        for block in blocks:
            under = sorted(set(tops[block.first : block.last]) - {-1})
            below.append((block.index, tuple(under)))
            tops[block.first : block.last] = [block.index] * (block.last - block.first)
        return Stack(tuple(below))

    def settle(self, lives: Sequence[Lifetime], bound: int, align: int = 64) -> Packing | None:
        """Repack the same lives with other sizes in the same order; `bound` is their lower bound.

        The packing is valid, but not necessarily the lowest. Returns None if a life that was empty
        has bytes now.
        """
        sizes = [aligned(life.size, align) for life in lives]
        if sum(map(bool, sizes)) > sum(1 for number, _ in self.below if sizes[number]):
            return None
        offsets, tops = [0] * len(lives), [0] * len(lives)
        for number, under in self.below:
            offset = max([tops[index] for index in under], default=0)
            offsets[number], tops[number] = offset, offset + sizes[number]
        return Packing(tuple(offsets), max(tops, default=0), bound)
