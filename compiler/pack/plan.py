"""`pack()`: a greedy packing first, then a series of searches for lower heights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import product
from time import monotonic

from compiler.pack.greedy import greedy
from compiler.pack.life import Lifetime, PackedLife, PackError, Packing, blocks_of, expect_packable
from compiler.pack.life import height_of as highest
from compiler.pack.search import Found, Pick, Search, cost
from compiler.pack.sections import Sections
from compiler.support.dataclass import dataclass

EFFORT = 100_000
"""Default search steps of `pack`: one or two seconds, if a search is needed."""

SLICE = 2_000
"""Minimum steps of the first attempts; those of each later round are a fifth longer."""

LONGEST = 10
"""Maximum length of an attempt, relative to the first: the clock is read between attempts."""

RANKS: tuple[Callable[[PackedLife], tuple[int, ...]], ...] = (
    lambda block: (block.first - block.last, -block.size, -block.pressure, block.index),
    lambda block: (-block.pressure, (block.first - block.last) * block.size, block.index),
    lambda block: (-block.size, block.index),
)
"""Which block to try first: the longest, the one with most bytes × steps, or the largest."""


def pack(
    lives: Sequence[Lifetime],
    align: int = 64,
    effort: int = EFFORT,
    *,
    enough: int = 0,
    seconds: float | None = None,
) -> Packing:
    """Assign each life an offset, a multiple of `align`, so that no two live at once overlap.

    Stops at the bound, at a height of `enough` bytes, at a proof of optimality, or after `effort`
    steps of search (0: greedy alone), and keeps the lowest packing found; its `note` is the reason
    why it stopped above the bound. The result is deterministic unless `seconds` limits the wall
    time too. Raises PackError for a life that ends before it begins or has a negative size, for
    `align` below 1 and `effort` below 0.

    >>> pack([Lifetime(0, 2, 100), Lifetime(1, 3, 64), Lifetime(2, 4, 64)])
    Packing(offsets=(0, 128, 0), height=192, bound=192, note='')
    """
    expect_packable(lives, align)
    if effort < 0:
        raise PackError(f"effort must be 0 steps or more, got {effort}")
    blocks = blocks_of(lives, align)
    bound = max((block.pressure for block in blocks), default=0)
    initial = greedy(blocks, max(bound, enough))
    search_state = _HeightSearch(blocks, initial, bound, max(bound, enough), effort, seconds)
    if search_state.height > search_state.enough:
        search_state.run()
    offsets = [0] * len(lives)
    for block, offset in zip(blocks, search_state.offsets, strict=True):
        offsets[block.index] = offset
    return Packing(tuple(offsets), search_state.height, bound, search_state.note())


@dataclass
class _HeightSearch:
    """The lowest offsets so far, and the search for lower ones.

    No packing is lower than `proved`. The first target is `enough`, then bisection between the last
    height that failed and the lowest that succeeded, until they meet; then again, with longer
    attempts.
    """

    blocks: Sequence[PackedLife]
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
        """Run rounds of increasingly long attempts."""
        self.sections = Sections.of(self.blocks)
        self.unit = self.sections.unit
        self.ranks = [_ranks(self.blocks, key) for key in RANKS]
        self.searches = dict[int, Search]()
        first = max(SLICE, len(self.blocks) * cost(len(self.sections.live)))
        steps = first
        while self._may_continue():
            self._round(steps)
            steps = min(steps * 6 // 5, first * LONGEST)

    def _may_continue(self) -> bool:
        in_time = self.seconds is None or monotonic() < self.ended
        return self.height > max(self.proved, self.enough) and self.spent < self.effort and in_time

    def _round(self, steps: int) -> None:
        """Bisect between the lowest height that may be possible and the lowest one found."""
        target = max(self.proved, self.enough) // self.unit * self.unit
        while target < self.height and self._may_continue():
            outcome = self._try(target, steps)
            if outcome is Found.NOTHING:
                self.proved = max(self.proved, target + self.unit)
            failed = target - self.unit if outcome is Found.PACKING else target
            target = (failed + self.height) // (2 * self.unit) * self.unit
            if target <= failed:
                return

    def _try(self, target: int, steps: int) -> Found:
        """Attempt one height with each heuristic."""
        search = self.searches.setdefault(target, Search(self.sections, target))
        outcome = Found.OPEN
        for pick, rank in product(Pick, self.ranks):
            if outcome is Found.OPEN and self._may_continue():
                before = search.steps
                outcome = search.attempt(rank, pick, min(steps, self.effort - self.spent))
                self.spent += search.steps - before + 1
        if outcome is Found.PACKING:
            self.offsets = tuple(search.offsets)
            self.height = highest(self.blocks, self.offsets)
        return outcome

    def note(self) -> str:
        """Return why the height is above the bound, if it is."""
        bound = max((block.pressure for block in self.blocks), default=0)
        if self.height <= bound:
            return ""
        above = f"{self.height - bound} bytes above the bound"
        if self.height <= self.proved:
            return f"{above}: the search was exhaustive, no packing is lower"
        if self.height <= self.enough:
            return f"{above}: the requested height is reached"
        searched = f"after {self.spent} search steps"
        return f"{above} {searched}; the proved minimum is {self.proved} bytes"


def _ranks(blocks: Sequence[PackedLife], key: Callable[[PackedLife], tuple[int, ...]]) -> list[int]:
    """Return the rank of each block when sorted by a key."""
    ranks = [0] * len(blocks)
    for place, number in enumerate(sorted(range(len(blocks)), key=lambda n: key(blocks[n]))):
        ranks[number] = place
    return ranks
