"""Packs values that live for a while into one arena: lives and sizes in, byte offsets out.

Two lives that share a step must not share a byte; the arena should be little higher than the
largest sum of sizes alive at one step, below which nothing can go. Finding the lowest arena is
NP-hard, so blocks are laid one by one, each into the tightest gap it fits. What decides is the
order, and the best ones begin with the blocks that meet the fullest step. Where a block ends
above the bound, it is laid earlier in the next try. Nothing here knows what a value is: a plan
is packed when its sizes become known, which is at every new batch size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

EFFORT = 8
"""Tries `pack` makes unless told otherwise."""

TILE = 64
"""Steps below which `Occupancy` looks at blocks one by one."""


class PackError(ValueError):
    """Lives that cannot be packed as given, or a packing that breaks a rule."""


@dataclass(frozen=True)
class Life:
    """A value of `size` bytes that is there in the steps `start`, …, `stop - 1`."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Packing:
    """A byte offset for each life, in an arena of `height` bytes.

    `bound` is the largest live sum of the aligned sizes: no packing is lower.
    """

    offsets: tuple[int, ...]
    height: int
    bound: int

    @property
    def ratio(self) -> float:
        """Height ÷ bound: 1.0 is perfect, and so is an arena without bytes."""
        return self.height / self.bound if self.bound else 1.0


def lower_bound(lives: Sequence[Life], align: int = 64) -> int:
    """The largest sum of aligned sizes alive at one step, in bytes.

    Raises PackError as `pack` does.

    >>> lower_bound([Life(0, 2, 100), Life(1, 3, 64), Life(2, 4, 64)])
    192
    """
    _expect_packable(lives, align)
    return max((block.pressure for block in _blocks(lives, align)), default=0)


def pack(lives: Sequence[Life], align: int = 64, effort: int = EFFORT) -> Packing:
    """Give each life an offset, a multiple of `align`, so that no two alive at once overlap.

    Lays every life at most `effort` times and stops as soon as the bound is reached; the lowest
    of the tries is kept. The same lives give the same offsets, always. Raises PackError for a
    life that ends before it begins or has a negative size, and for `align` or `effort` below 1.

    >>> pack([Life(0, 2, 100), Life(1, 3, 64), Life(2, 4, 64)])
    Packing(offsets=(0, 128, 0), height=192, bound=192)
    """
    _expect_packable(lives, align)
    if effort < 1:
        raise PackError(f"effort must be at least 1, got {effort}")
    blocks = _blocks(lives, align)
    bound = max((block.pressure for block in blocks), default=0)
    laid = _search(blocks, bound, effort) if blocks else []
    offsets = [0] * len(lives)
    for block, offset in zip(blocks, laid, strict=True):
        offsets[block.index] = offset
    return Packing(tuple(offsets), _height(blocks, laid), bound)


def check(lives: Sequence[Life], packing: Packing, align: int = 64) -> None:
    """Verify a packing in one sweep over time: aligned, inside the arena, nothing overlapping.

    Raises PackError naming the life that lies wrong, or the two that overlap.

    >>> check([Life(0, 2, 64), Life(1, 3, 64)], Packing((0, 0), 64, 128))
    Traceback (most recent call last):
    compiler.pack.PackError: lives 0 and 1 overlap: life 0 holds bytes [0, 64) in steps [0, 2), \
life 1 holds bytes [0, 64) in steps [1, 3)
    """
    _expect_packable(lives, align)
    if len(packing.offsets) != len(lives):
        raise PackError(f"{len(lives)} lives need as many offsets, got {len(packing.offsets)}")
    for index, (life, offset) in enumerate(zip(lives, packing.offsets, strict=True)):
        _expect_inside(index, offset, _aligned(life.size, align), packing.height, align)
    _expect_disjoint(lives, packing.offsets, align)


# What is packed


@dataclass(frozen=True, slots=True)
class Block:
    """A life as the search sees it, with steps renumbered so that one begins at each.

    `index` is its place among the lives, `size` aligned bytes, `[first, last)` its steps, and
    `pressure` the largest live sum it meets. In the tree of `Occupancy`, `whole` are the highest
    nodes it covers, `above` those it covers in part, `tiles` the numbers of the leaves in `above`.
    """

    index: int
    size: int
    first: int
    last: int
    pressure: int
    whole: tuple[int, ...]
    above: tuple[int, ...]
    tiles: tuple[int, ...]


def _blocks(lives: Sequence[Life], align: int) -> list[Block]:
    """The lives that hold bytes; two of them share a step here exactly if they did before."""
    kept = [index for index, life in enumerate(lives) if life.size]
    starts = sorted({lives[index].start for index in kept})
    rank = {start: step for step, start in enumerate(starts)}
    spans = [(rank[lives[i].start], bisect_left(starts, lives[i].stop)) for i in kept]
    sizes = [_aligned(lives[index].size, align) for index in kept]
    pressures = _pressures(_live_sums(spans, sizes, len(starts)), spans)
    leaves = 1 << (len(starts) // TILE).bit_length()
    return [
        Block(index, size, *span, pressure, *_nodes(*span, leaves))
        for index, size, span, pressure in zip(kept, sizes, spans, pressures, strict=True)
    ]


def _nodes(first: int, last: int, leaves: int) -> tuple[tuple[int, ...], ...]:
    """What `Block` calls whole, above and tiles, for the steps `[first, last)`.

    The root is node 1, below node n are 2 n and 2 n + 1, and tile t is node `leaves` + t.
    """
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
    return tuple(whole), tuple(sorted(above)), tuple(tiles)


def _live_sums(spans: Sequence[tuple[int, int]], sizes: Sequence[int], steps: int) -> list[int]:
    """The bytes alive at each step."""
    change = [0] * (steps + 1)
    for (first, last), size in zip(spans, sizes, strict=True):
        change[first] += size
        change[last] -= size
    return list(accumulate(change[:-1]))


def _pressures(sums: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """The largest of `sums` within each span, in one pass.

    `peaks` are the steps that no later one so far outdoes, so the first of them inside a span
    that ends here is the highest.
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


def _height(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    tops = (offset + block.size for block, offset in zip(blocks, offsets, strict=True))
    return max(tops, default=0)


def _aligned(size: int, align: int) -> int:
    return -(-size // align) * align


# The search

ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    # By time first: it reaches the bound most often, and leaves the fewest gaps to look at.
    lambda block: (-block.pressure, block.first, -block.last, block.index),
    lambda block: (-block.pressure, -block.last, block.first, block.index),
    lambda block: (-block.pressure, -block.size, block.index),
)
"""What to sort the blocks by, in the order in which `pack` tries them."""


def _search(blocks: Sequence[Block], bound: int, effort: int) -> list[int]:
    """The offsets of the lowest try: each order as it is, then each improved, over and over."""
    numbers = range(len(blocks))
    orders = [sorted(numbers, key=lambda n: key(blocks[n])) for key in ORDERS[:effort]]
    best: list[int] = []
    lowest = 0
    for turn in range(effort):
        order = orders[turn % len(orders)]
        offsets = _lay(blocks, order)
        height = _height(blocks, offsets)
        if not best or height < lowest:
            best, lowest = offsets, height
        if height == bound:
            break
        orders[turn % len(orders)] = _hasten(order, blocks, offsets, bound)
    return best


def _hasten(
    order: Sequence[int], blocks: Sequence[Block], offsets: Sequence[int], bound: int
) -> list[int]:
    """The order with each block that ends above the bound moved half-way to the front."""
    hastened = list(order)
    for place, number in enumerate(order):
        if offsets[number] + blocks[number].size > bound:
            hastened.insert(place // 2, hastened.pop(place))
    return hastened


def _lay(blocks: Sequence[Block], order: Iterable[int]) -> list[int]:
    """Lay the blocks one by one in this order; the offsets are in the order of `blocks`."""
    occupancy = Occupancy()
    offsets = [0] * len(blocks)
    for number in order:
        block = blocks[number]
        offsets[number] = _best_fit(occupancy.taken(block), block.size)
        occupancy.take(block, offsets[number])
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

    def taken(self, block: Block) -> list[tuple[int, int]]:
        """The byte ranges taken in any step of this block, sorted, some perhaps twice."""
        begin, end = block.first, block.last
        ranges = [
            (low, high)
            for tile in block.tiles
            for low, high, first, last in self.tiles[tile]
            if first < end and begin < last
        ]
        flat = [self.some[node] for node in block.whole]
        flat += [self.full[node] for node in block.above]
        for bounds in flat:
            ranges += zip(bounds[::2], bounds[1::2], strict=True)
        ranges.sort()
        return ranges

    def take(self, block: Block, offset: int) -> None:
        """Mark the bytes `[offset, offset + size)` as taken in the steps of this block."""
        top = offset + block.size
        for tile in block.tiles:
            self.tiles[tile].append((offset, top, block.first, block.last))
        for node in block.whole:
            _merge(self.full[node], offset, top)
            _merge(self.some[node], offset, top)
        for node in block.above:
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


# The rules a packing keeps


def _expect_packable(lives: Sequence[Life], align: int) -> None:
    if align < 1:
        raise PackError(f"align must be at least 1 byte, got {align}")
    for index, life in enumerate(lives):
        if life.size < 0:
            raise PackError(f"life {index} must have 0 bytes or more, got {life.size}")
        if life.stop <= life.start:
            raise PackError(f"life {index} must stop after {life.start}, got stop {life.stop}")


def _expect_inside(index: int, offset: int, size: int, height: int, align: int) -> None:
    if offset % align:
        raise PackError(f"life {index} must lie at a multiple of {align} bytes, got {offset}")
    if offset < 0 or offset + size > height:
        held = f"bytes [{offset}, {offset + size})"
        raise PackError(f"life {index} must lie within {height} bytes, got {held}")


def _expect_disjoint(lives: Sequence[Life], offsets: Sequence[int], align: int) -> None:
    """Keep the ranges alive now sorted: a newcomer can only overlap one of its neighbours."""
    held = [index for index, life in enumerate(lives) if life.size]
    tops = [offsets[index] + _aligned(life.size, align) for index, life in enumerate(lives)]
    events = [(lives[i].stop, False, i) for i in held] + [(lives[i].start, True, i) for i in held]
    alive: list[tuple[int, int]] = []
    for _, begins, index in sorted(events):
        place = bisect_left(alive, (offsets[index], index))
        if not begins:
            del alive[place]
            continue
        for _, other in alive[max(place - 1, 0) : place + 1]:
            if offsets[index] < tops[other] and offsets[other] < tops[index]:
                one, two = sorted((index, other))
                held = f"{_shown(one, lives, offsets)}, {_shown(two, lives, offsets)}"
                raise PackError(f"lives {one} and {two} overlap: {held}")
        alive.insert(place, (offsets[index], index))


def _shown(index: int, lives: Sequence[Life], offsets: Sequence[int]) -> str:
    life, offset = lives[index], offsets[index]
    held = f"bytes [{offset}, {offset + life.size})"
    return f"life {index} holds {held} in steps [{life.start}, {life.stop})"
