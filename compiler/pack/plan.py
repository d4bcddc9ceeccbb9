"""How hard to try: a greedy packing first, then searches of one height after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from time import monotonic

from compiler.pack.greedy import greedy
from compiler.pack.life import Block, Life, PackError, Packing, blocks_of, expect_packable
from compiler.pack.life import height_of as highest
from compiler.pack.search import Found, Pick, Search, cost
from compiler.pack.sections import Sections

EFFORT = 100_000
"""Steps that `pack` searches unless told otherwise: a second or two, where it comes to that."""

SLICE = 2_000
"""Steps of the first attempts at least; those of each round after it are a fifth longer."""

LONGEST = 10
"""Times that an attempt may be longer than the first: the clock is looked at between attempts."""

RANKS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda block: (block.first - block.last, -block.size, -block.pressure, block.index),
    lambda block: (-block.pressure, (block.first - block.last) * block.size, block.index),
    lambda block: (-block.size, block.index),
)
"""Which block to try first: the longest, the one with most bytes × steps, or the largest."""


def pack(
    lives: Sequence[Life],
    align: int = 64,
    effort: int = EFFORT,
    *,
    enough: int = 0,
    seconds: float | None = None,
) -> Packing:
    """Give each life an offset, a multiple of `align`, so that no two alive at once overlap.

    Ends at the bound, at a height of `enough` bytes, at a proof that nothing is lower, or after
    `effort` steps of search (0: greedy alone), and keeps the lowest packing it met; its `note` says
    what ended it above the bound. The same lives give the same offsets, always, unless `seconds` of
    wall time are to end it too. Raises PackError for a life that ends before it begins or has a
    negative size, for `align` below 1 and `effort` below 0.

    >>> pack([Life(0, 2, 100), Life(1, 3, 64), Life(2, 4, 64)])
    Packing(offsets=(0, 128, 0), height=192, bound=192, note='')
    """
    expect_packable(lives, align)
    if effort < 0:
        raise PackError(f"effort must be 0 steps or more, got {effort}")
    blocks = blocks_of(lives, align)
    bound = max((block.pressure for block in blocks), default=0)
    laid = greedy(blocks, max(bound, enough))
    climb = _Climb(blocks, laid, bound, max(bound, enough), effort, seconds)
    if climb.height > climb.enough:
        climb.run()
    offsets = [0] * len(lives)
    for block, offset in zip(blocks, climb.offsets, strict=True):
        offsets[block.index] = offset
    return Packing(tuple(offsets), climb.height, bound, climb.note())


@dataclass
class _Climb:
    """The lowest offsets so far, and the search for lower ones.

    Nothing is lower than `proved`. Tried is `enough` first, then halfway between the last height
    that was not reached and the lowest that was, until nothing is between; then again, for longer.
    """

    blocks: Sequence[Block]
    offsets: Sequence[int]
    proved: int
    enough: int
    effort: int
    seconds: float | None
    spent: int = 0
    ended: float = field(default_factory=monotonic)
    height: int = field(init=False)

    def __post_init__(self) -> None:
        self.height = highest(self.blocks, self.offsets)
        self.ended += self.seconds or 0.0

    def run(self) -> None:
        """Round after round, each with longer attempts."""
        self.sections = Sections.of(self.blocks)
        self.unit = self.sections.unit
        self.ranks = [_ranks(self.blocks, key) for key in RANKS]
        self.searches = dict[int, Search]()
        first = max(SLICE, len(self.blocks) * cost(len(self.sections.live)))
        steps = first
        while self._goes_on():
            self._round(steps)
            steps = min(steps * 6 // 5, first * LONGEST)

    def _goes_on(self) -> bool:
        in_time = self.seconds is None or monotonic() < self.ended
        return self.height > max(self.proved, self.enough) and self.spent < self.effort and in_time

    def _round(self, steps: int) -> None:
        """From the lowest height that may be reached to the lowest that was, by halves."""
        target = max(self.proved, self.enough) // self.unit * self.unit
        while target < self.height and self._goes_on():
            found = self._try(target, steps)
            if found is Found.NOTHING:
                self.proved = max(self.proved, target + self.unit)
            missed = target - self.unit if found is Found.PACKING else target
            target = (missed + self.height) // (2 * self.unit) * self.unit
            if target <= missed:
                return

    def _try(self, target: int, steps: int) -> Found:
        """Attempts at one height, each with another idea of what to try first."""
        search = self.searches.setdefault(target, Search(self.sections, target))
        found = Found.OPEN
        for pick, rank in product(Pick, self.ranks):
            if found is Found.OPEN and self._goes_on():
                before = search.steps
                found = search.attempt(rank, pick, min(steps, self.effort - self.spent))
                self.spent += search.steps - before + 1
        if found is Found.PACKING:
            self.offsets = tuple(search.offsets)
            self.height = highest(self.blocks, self.offsets)
        return found

    def note(self) -> str:
        """Why the height is what it is, where it is above the bound."""
        bound = max((block.pressure for block in self.blocks), default=0)
        if self.height <= bound:
            return ""
        above = f"{self.height - bound} bytes above the bound"
        if self.height <= self.proved:
            return f"{above}: the search went through all there is, and nothing is lower"
        if self.height <= self.enough:
            return f"{above}: as low as was asked"
        searched = f"{self.spent} steps of search found no lower"
        return f"{above}: {searched}; nothing is below {self.proved} bytes"


def _ranks(blocks: Sequence[Block], key: Callable[[Block], tuple[int, ...]]) -> list[int]:
    """The place of each block when sorted by a key."""
    ranks = [0] * len(blocks)
    for place, number in enumerate(sorted(range(len(blocks)), key=lambda n: key(blocks[n]))):
        ranks[number] = place
    return ranks
