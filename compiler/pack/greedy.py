"""Greedy packing: blocks are placed one by one, each into the tightest gap that fits (best fit).

The result depends on the order, and the best orders begin with the blocks live at the step with the
largest live sum. A block that ends above the bound is placed earlier in the next try.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from compiler.pack.life import PackedLife, height_of
from compiler.support.dataclass import dataclass

TRIES = 4
"""Maximum number of times that all blocks are placed."""

TILE = 64
"""Steps per leaf of the tree of `Occupancy`; within a leaf, lives are compared one by one."""

ORDERS: tuple[Callable[[PackedLife], tuple[int, ...]], ...] = (
    # By time first: it reaches the bound most often and leaves the fewest gaps to search.
    lambda block: (-block.pressure, block.first, -block.last, block.index),
    lambda block: (-block.pressure, -block.last, block.first, block.index),
    lambda block: (-block.pressure, -block.size, block.index),
)
"""Sort keys of the blocks, in the order in which they are tried."""


def greedy(blocks: Sequence[PackedLife], bound: int, tries: int = TRIES) -> list[int]:
    """Return the offsets of the lowest try: each order first unchanged, then improved repeatedly.

    Stops at the first try that is as low as `bound`.
    """
    covers = _covers(blocks)
    orders: dict[int, list[int]] = {}
    best: list[int] = []
    lowest = 0
    for attempt in range(tries):
        kind = attempt % len(ORDERS)
        order = orders.get(kind) or _sorted(blocks, ORDERS[kind])
        offsets = _place(blocks, covers, order)
        height = height_of(blocks, offsets)
        if not best or height < lowest:
            best, lowest = offsets, height
        if height <= bound:
            break
        orders[kind] = _promote(order, blocks, offsets, bound)
    return best


def _sorted(
    blocks: Sequence[PackedLife], key: Callable[[PackedLife], tuple[int, ...]]
) -> list[int]:
    keys = [key(block) for block in blocks]
    return sorted(range(len(blocks)), key=keys.__getitem__)


def _promote(
    order: Sequence[int], blocks: Sequence[PackedLife], offsets: Sequence[int], bound: int
) -> list[int]:
    """Return the order with each block that ends above the bound moved half-way to the front."""
    promoted = list(order)
    for position, number in enumerate(order):
        if offsets[number] + blocks[number].size > bound:
            promoted.insert(position // 2, promoted.pop(position))
    return promoted


def _place(
    blocks: Sequence[PackedLife], covers: Sequence[Cover], order: Iterable[int]
) -> list[int]:
    """Place the blocks one by one in this order; the offsets are in the order of `blocks`."""
    occupancy = Occupancy()
    offsets = [0] * len(blocks)
    for number in order:
        size = blocks[number].size
        offsets[number] = _best_fit(occupancy.taken(covers[number]), size)
        occupancy.take(covers[number], offsets[number], size)
    return offsets


def _best_fit(taken: Iterable[tuple[int, int]], size: int) -> int:
    """Return the offset of the smallest gap of at least `size` bytes, or of the free end.

    `taken` are byte ranges sorted by their lower end; they may overlap.
    """
    floor = 0
    best, tightest = -1, 0
    for low, high in taken:
        gap = low - floor
        if gap == size:
            return floor
        if gap > size and (best < 0 or gap < tightest):
            best, tightest = floor, gap
        if high > floor:
            floor = high
    return floor if best < 0 else best


# ---- occupied bytes


@dataclass(frozen=True, slots=True)
class Cover:
    """The nodes of the tree of `Occupancy` that the steps `[first, last)` of a block cover.

    `whole` are the highest nodes covered entirely, `above` those covered partly, and `parts` the
    steps of the leaves in `above` that are covered. The root is node 1; the children of node n are
    2 n and 2 n + 1.
    """

    whole: tuple[int, ...]
    above: tuple[int, ...]
    parts: tuple[LeafPart, ...]


class LeafPart(NamedTuple):
    """The steps `[first, last)` of one leaf, the index of which is `tile`."""

    tile: int
    first: int
    last: int


def _covers(blocks: Sequence[PackedLife]) -> list[Cover]:
    steps = max((block.last for block in blocks), default=0)
    leaves = 1 << (steps // TILE).bit_length()
    return [_cover(block.first, block.last, leaves) for block in blocks]


def _cover(first: int, last: int, leaves: int) -> Cover:
    """Return the cover of a range of steps in a tree whose tile t is node `leaves` + t."""
    tiles = sorted({step // TILE for step in (first, last) if step % TILE})
    low, high = -(-first // TILE) + leaves, last // TILE + leaves
    whole: list[int] = []
    while low < high:
        whole += [low] * (low % 2) + [high - 1] * (high % 2)
        low, high = (low + 1) // 2, high // 2
    edges = [leaves + tile for tile in tiles]
    above = set(edges)
    parents = whole + edges
    while parents := [n // 2 for n in parents if n > 1 and n // 2 not in above]:
        above.update(parents)
    parts = [LeafPart(n, max(first, n * TILE), min(last, n * TILE + TILE)) for n in tiles]
    return Cover(tuple(whole), tuple(sorted(above)), tuple(parts))


class Occupancy:
    """The occupied bytes of every step: a segment tree over time.

    `full` of a node is the bytes occupied in all its steps, by blocks that cover the node but not
    its parent; `some` those occupied in any of its steps. Both are flat sorted lists `low, high,
    low, high, …` of disjoint, non-adjacent ranges, so that a stack of any number of blocks, such as
    the saved activations of a training step, is one range. `tiles` of a leaf are the bytes occupied
    by blocks that cover a part of it, by the steps of the part: blocks that all end at one op, such
    as a sum of many values, are one range too.
    """

    def __init__(self) -> None:
        self.full: defaultdict[int, list[int]] = defaultdict(list)
        self.some: defaultdict[int, list[int]] = defaultdict(list)
        self.tiles: defaultdict[int, dict[tuple[int, int], list[int]]] = defaultdict(dict)

    def taken(self, cover: Cover) -> list[tuple[int, int]]:
        """Return the byte ranges occupied in any step of a cover, sorted, possibly with
        duplicates.
        """
        flat = [
            bounds
            for tile, begin, end in cover.parts
            for (first, last), bounds in self.tiles[tile].items()
            if first < end and begin < last
        ]
        flat += [self.some[node] for node in cover.whole]
        flat += [self.full[node] for node in cover.above]
        ranges: list[tuple[int, int]] = []
        for bounds in flat:
            ranges += zip(bounds[::2], bounds[1::2], strict=True)
        ranges.sort()
        return ranges

    def take(self, cover: Cover, offset: int, size: int) -> None:
        """Mark the bytes `[offset, offset + size)` as occupied in the steps of a cover."""
        top = offset + size
        for tile, first, last in cover.parts:
            _merge(self.tiles[tile].setdefault((first, last), []), offset, top)
        for node in cover.whole:
            _merge(self.full[node], offset, top)
            _merge(self.some[node], offset, top)
        for node in cover.above:
            _merge(self.some[node], offset, top)


def _merge(bounds: list[int], low: int, high: int) -> None:
    """Insert the range `[low, high)` into flat sorted ranges, merging those it touches.

    >>> bounds = [0, 2, 4, 6, 9, 10]
    >>> _merge(bounds, 2, 4)
    >>> bounds
    [0, 6, 9, 10]
    """
    first, last = bisect_left(bounds, low), bisect_right(bounds, high)
    bounds[first:last] = [low] * (first % 2 == 0) + [high] * (last % 2 == 0)
