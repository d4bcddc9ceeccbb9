"""The greedy packing: blocks are laid one by one, each into the tightest gap it fits.

What decides is the order, and the best ones begin with the blocks that meet the fullest step. Where
a block ends above the bound, it is laid earlier in the next try.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler.pack.life import Block, height_of

TRIES = 4
"""How often all blocks are laid at most."""

TILE = 64
"""Steps below which `Occupancy` looks at blocks one by one."""

ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    # By time first: it reaches the bound most often, and leaves the fewest gaps to look at.
    lambda block: (-block.pressure, block.first, -block.last, block.index),
    lambda block: (-block.pressure, -block.last, block.first, block.index),
    lambda block: (-block.pressure, -block.size, block.index),
)
"""What to sort the blocks by, in the order in which they are tried."""


def greedy(blocks: Sequence[Block], bound: int, tries: int = TRIES) -> list[int]:
    """The offsets of the lowest try: each order as it is, then each improved, over and over.

    Ends at the first try that is as low as `bound`.
    """
    covers = _covers(blocks)
    orders: dict[int, list[int]] = {}
    best: list[int] = []
    lowest = 0
    for turn in range(tries):
        kind = turn % len(ORDERS)
        order = orders.get(kind) or _sorted(blocks, ORDERS[kind])
        offsets = _lay(blocks, covers, order)
        height = height_of(blocks, offsets)
        if not best or height < lowest:
            best, lowest = offsets, height
        if height <= bound:
            break
        orders[kind] = _hasten(order, blocks, offsets, bound)
    return best


def _sorted(blocks: Sequence[Block], key: Callable[[Block], tuple[int, ...]]) -> list[int]:
    keys = [key(block) for block in blocks]
    return sorted(range(len(blocks)), key=keys.__getitem__)


def _hasten(
    order: Sequence[int], blocks: Sequence[Block], offsets: Sequence[int], bound: int
) -> list[int]:
    """The order with each block that ends above the bound moved half-way to the front."""
    hastened = list(order)
    for place, number in enumerate(order):
        if offsets[number] + blocks[number].size > bound:
            hastened.insert(place // 2, hastened.pop(place))
    return hastened


def _lay(blocks: Sequence[Block], covers: Sequence[Cover], order: Iterable[int]) -> list[int]:
    """Lay the blocks one by one in this order; the offsets are in the order of `blocks`."""
    occupancy = Occupancy()
    offsets = [0] * len(blocks)
    for number in order:
        size = blocks[number].size
        offsets[number] = _best_fit(occupancy.taken(covers[number]), size)
        occupancy.take(covers[number], offsets[number], size)
    return offsets


def _best_fit(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The offset of the smallest gap of at least `size` bytes, or of the free end.

    `taken` are byte ranges sorted by their lower end; they may overlap.
    """
    floor = 0
    found, tightest = -1, 0
    for low, high in taken:
        gap = low - floor
        if gap == size:
            return floor
        if gap > size and (found < 0 or gap < tightest):
            found, tightest = floor, gap
        if high > floor:
            floor = high
    return floor if found < 0 else found


# Which bytes are taken


@dataclass(frozen=True, slots=True)
class Cover:
    """Where the steps `[first, last)` of a block stand in the tree of `Occupancy`.

    `whole` are the highest nodes they cover, `above` those they cover in part, and `tiles` the
    numbers of the leaves in `above`. The root is node 1, below node n are 2 n and 2 n + 1.
    """

    first: int
    last: int
    whole: tuple[int, ...]
    above: tuple[int, ...]
    tiles: tuple[int, ...]


def _covers(blocks: Sequence[Block]) -> list[Cover]:
    steps = max((block.last for block in blocks), default=0)
    leaves = 1 << (steps // TILE).bit_length()
    return [_cover(block.first, block.last, leaves) for block in blocks]


def _cover(first: int, last: int, leaves: int) -> Cover:
    """The cover of some steps in a tree whose tile t is node `leaves` + t."""
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
    return Cover(first, last, tuple(whole), tuple(sorted(above)), tuple(tiles))


class Occupancy:
    """Which bytes are taken in which steps: a segment tree over time.

    `full` of a node are the bytes taken in all its steps, by blocks that cover the node and not
    the one above it; `some` those taken in any of its steps. Both are flat sorted lists
    `low, high, low, high, …` of ranges that do not touch, so that a stack of blocks, as the kept
    activations of a training step are, is one range however many they are.
    """

    def __init__(self) -> None:
        self.full: defaultdict[int, list[int]] = defaultdict(list)
        self.some: defaultdict[int, list[int]] = defaultdict(list)
        self.tiles: defaultdict[int, list[tuple[int, int, int, int]]] = defaultdict(list)

    def taken(self, cover: Cover) -> list[tuple[int, int]]:
        """The byte ranges taken in any step of a cover, sorted, some perhaps twice."""
        begin, end = cover.first, cover.last
        ranges = [
            (low, high)
            for tile in cover.tiles
            for low, high, first, last in self.tiles[tile]
            if first < end and begin < last
        ]
        flat = [self.some[node] for node in cover.whole]
        flat += [self.full[node] for node in cover.above]
        for bounds in flat:
            ranges += zip(bounds[::2], bounds[1::2], strict=True)
        ranges.sort()
        return ranges

    def take(self, cover: Cover, offset: int, size: int) -> None:
        """Mark the bytes `[offset, offset + size)` as taken in the steps of a cover."""
        top = offset + size
        for tile in cover.tiles:
            self.tiles[tile].append((offset, top, cover.first, cover.last))
        for node in cover.whole:
            _merge(self.full[node], offset, top)
            _merge(self.some[node], offset, top)
        for node in cover.above:
            _merge(self.some[node], offset, top)


def _merge(bounds: list[int], low: int, high: int) -> None:
    """Join the range `[low, high)` to flat sorted ranges; those it touches become one with it.

    >>> bounds = [0, 2, 4, 6, 9, 10]
    >>> _merge(bounds, 2, 4)
    >>> bounds
    [0, 6, 9, 10]
    """
    first, last = bisect_left(bounds, low), bisect_right(bounds, high)
    bounds[first:last] = [low] * (first % 2 == 0) + [high] * (last % 2 == 0)
