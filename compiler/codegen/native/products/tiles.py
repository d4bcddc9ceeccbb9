"""Choosing register tiles and the order of loops: a small cost model.

A tile is `high` × `wide` rows by some vectors of columns, whose sums stay in registers while the
steps of the sum run. A step loads each vector of the right operand once, broadcasts each row's
element of the left one, and multiplies all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.prefetching import results_read
from compiler.ir.dims import Size, divisor
from compiler.ir.dims import product as size_product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import cached_by_thresholds, threshold

MOST_ROWS: dict[int, dict[int, int]] = {
    32: {1: 14, 2: 12, 3: 8, 4: 6},
    16: {1: 10, 2: 6, 3: 4},
}
"""By the number of registers: the most rows of a tile by its vectors, so that nothing spills."""

FEW_ROWS_TILE: dict[int, tuple[int, int]] = {32: (2, 8), 16: (3, 4)}
"""By the number of registers: vectors and rows of the tiles of a product of few rows. Batches are
mostly multiples of these rows, and smaller tiles of the rows left over wait for additions."""

TILE_VECTORS = threshold(
    "tile_vectors", 4, "vectors", "a tile of a product has at most so many; more are panels",
    small=1,
)  # fmt: skip
TILE_ROWS = threshold(
    "tile_rows", 14, "rows", "a tile of a product has at most so many, or what registers hold",
    small=3,
)  # fmt: skip
UNROLLED_STEPS = threshold(
    "unrolled_steps", 7, "steps of a sum", "a longer innermost axis of a product is a loop", small=2
)
FIRST_CACHE = threshold(
    "first_cache", 32_000, "bytes", "a larger right operand of a product is packed", small=256
)
SECOND_CACHE = threshold(
    "second_cache", 700_000, "bytes",
    "blocks of rows of a product, and parts of a filter gradient, read no more", small=512,
)  # fmt: skip
SMALL_RIGHT = threshold(
    "right_operand", 100_000, "bytes",
    "a smaller right operand of a product is read as a whole for each tile of rows", small=384,
)  # fmt: skip
SMALL_LEFT = threshold(
    "left_operand", 1_200_000, "bytes",
    "rows of a larger left operand of a product are divided into blocks", small=512,
)  # fmt: skip
UNITS = threshold(
    "product_units", 16, "units", "a product is not divided into more for the sake of threads",
    small=5,
)  # fmt: skip
SHARED_WORK = threshold(
    "product_shared_work", 1_600_000, "floating-point operations",
    "a product has as many units as it has times so many", small=96,
)  # fmt: skip
UNIT_WORK = threshold(
    "product_unit_work", 200_000, "floating-point operations",
    "a unit of a product takes as many tiles of rows as have at least so many", small=64,
)  # fmt: skip
FEW_ROWS_BLOCK = threshold(
    "few_rows_block", 16, "rows", "those of a unit of a product of few rows", small=4
)

PAGE, WAYS = 4096, 8
"""Bytes between lines of the first cache that share a set, and the lines of a set."""

RESULT_WAYS = 12
"""Lines of a set that results, and what they are combined with, may need at a time."""

OPEN = threshold(
    "open_size", 96, "steps", "an axis of open size is assumed to have so many in a product",
    small=6,
)  # fmt: skip
FEWEST = threshold(
    "open_multiple", 32, "steps",
    "an open size is assumed to be a number of which it is a multiple, from so many on", small=4,
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """How a contraction is computed.

    `vectors` × `high` × `wide`: the tile, by rows of the last axis but one and of the last.
    `unroll`: steps of the sum written out in a loop. `order`: what runs outermost: "panels" of
    columns, "blocks" of rows and then panels, or "tiles" of rows, each with all panels.
    `block`: tiles of rows in a unit of work. `prefetch`: whether a tile fetches a part of the
    next panel into the second cache.
    """

    vectors: int
    high: int
    wide: int
    unroll: int = 4
    order: str = "tiles"
    block: int = 1
    prefetch: bool = False


@dataclass(frozen=True)
class Extent:
    """The sizes of a contraction that decide its tiling; open sizes are None.

    `outer` are the rows on axes before the last two, `depth` the steps of the sum, `inner` those
    of its innermost axis, `nbytes` the bytes of a step. `left` is the left operand's extent in
    bytes, `window` that of what the rows along one step of the last axis but one read, `row` how
    far a step on that axis moves it. With dot products a step is a word of several elements.
    `multiple` is a number that divides `high` even if that is open. `results` are the arrays that
    each row writes or reads a row of its own in, if those rows lie a multiple of a page apart.
    """

    outer: int | None
    high: int | None
    wide: int | None
    columns: int | None
    depth: int | None
    inner: int | None
    left: int
    window: int
    row: int
    nbytes: int
    multiple: int = 1
    results: int = 0


@cached_by_thresholds(4096)
def choose_tiling(machine: Machine, element: Type, extent: Extent, packed: bool) -> Tiling:
    """The tiling of least expected time for the sizes of a contraction."""
    vectors, high, wide = _best_tile(machine, element, extent)
    order, prefetch = _order(extent, packed)
    block = _block(extent, vectors * machine.lanes(element), high, order)
    return Tiling(vectors, high, wide, _unroll(extent.inner), order, block, prefetch)


def few_rows_tiling(machine: Machine, steps: Size) -> Tiling:
    """The tiling of a product of an open, small number of rows; `steps` are those of its sum."""
    vectors, high = FEW_ROWS_TILE[machine.registers]
    block = max(1, FEW_ROWS_BLOCK.value // high)
    return Tiling(vectors, high, 1, _unroll(known(steps)), "panels", block, True)


def _unroll(inner: int | None) -> int:
    """Steps in an iteration of the innermost loop, without a remainder if possible."""
    if inner is None:
        return 4
    if inner <= UNROLLED_STEPS.value:
        return inner
    return next((factor for factor in (2, 3) if inner % factor == 0), 2)


def tile_shapes(machine: Machine) -> Iterator[tuple[int, int]]:
    """The most rows of a tile for each number of vectors, for this machine."""
    for vectors, rows in MOST_ROWS[machine.registers].items():
        if vectors <= TILE_VECTORS.value:
            yield vectors, min(rows, TILE_ROWS.value)


def _best_tile(machine: Machine, element: Type, extent: Extent) -> tuple[int, int, int]:
    """Vectors, high and wide of the cheapest tile."""
    lanes = machine.lanes(element)
    columns = -(-(extent.columns or OPEN.value) // lanes)
    candidates = (
        (vectors, high, wide)
        for vectors, most in tile_shapes(machine)
        if vectors <= columns
        for high, wide in _row_tiles(extent, most)
    )
    return min(candidates, key=lambda tile: _cost(extent, columns, lanes, *tile))


def _row_tiles(extent: Extent, most: int) -> Iterator[tuple[int, int]]:
    """The shapes of at most that many rows; one axis at a time may be open."""
    widest = min(most, extent.wide or OPEN.value)
    for wide in range(1, widest + 1):
        highest = min(most // wide, extent.high or OPEN.value)
        if extent.wide is None:
            highest = 1
        for high in range(1, highest + 1):
            yield high, wide


def _cost(
    extent: Extent, columns: int, lanes: int, vectors: int, high: int, wide: int
) -> float:  # fmt: skip
    """Cycles of all tiles, the smaller ones at the edges included."""
    depth = extent.depth or OPEN.value
    panel = depth * vectors * lanes * extent.nbytes
    total = 0.0
    for (width, panels), (h, highs), (w, wides) in product(
        _split(columns, vectors),
        _row_split(extent, high),
        _split(extent.wide or OPEN.value, wide),
    ):
        step = step_cost(h * w, width, panel) + _conflicts(extent, h)
        ends = 1.5 + (16 if h * extent.results > RESULT_WAYS else 0)
        total += panels * highs * wides * (step * depth + 30 + ends * h * w * width)
    kinds = _row_kinds(extent, high) + len(_split(extent.wide or OPEN.value, wide)) - 1
    return total * (1 + 0.01 * kinds + (0.003 if high > 1 and wide > 1 else 0.0))


def _row_kinds(extent: Extent, high: int) -> int:
    """Smaller tiles of rows that there is code for, besides whole ones."""
    if extent.high is None:
        return len(rests(high, extent.multiple))
    return len(_split(extent.high, high)) - 1


def _conflicts(extent: Extent, high: int) -> float:
    """Cycles of a step that reads rows which lie a multiple of a page apart.

    They share one set of the first cache, which holds eight lines.
    """
    return high * 0.5 if extent.row and extent.row % PAGE == 0 and high > WAYS - 1 else 0.0


def _split(count: int, tile: int) -> list[tuple[int, int]]:
    """Whole tiles and a smaller one: pairs of size and number."""
    whole, rest = divmod(count, tile)
    return [*([(tile, whole)] if whole else []), *([(rest, 1)] if rest else [])]


def _row_split(extent: Extent, high: int) -> list[tuple[int, int]]:
    """Tiles along the last row axis but one; the rest of an open axis is cut into halves."""
    if extent.high is not None:
        return _split(extent.high, high)
    count = _assumed_high(extent)
    tiles = [(high, count // high)] if count >= high else []
    count %= high
    for size in rests(high, extent.multiple):
        tiles += [(size, count // size)] if count >= size else []
        count %= size
    return tiles


def _assumed_high(extent: Extent) -> int:
    """The rows on the last axis but one; of an open one, those of a single image or sentence."""
    if extent.high is not None:
        return extent.high
    return extent.multiple if extent.multiple >= FEWEST.value else OPEN.value


def rests(size: int, multiple: int) -> list[int]:
    """Tiles for the rows that whole tiles of a size leave of an open count: halves down to 1.

    If the count is a multiple of a number, so are they.

    >>> rests(6, 1), rests(12, 128), rests(8, 128)
    ([3, 1], [4], [])
    """
    step = gcd(size, multiple)
    parts = size // step
    return [step * (parts >> shift) for shift in range(1, parts.bit_length())]


def step_cost(rows: int, vectors: int, panel: int) -> float:
    """Cycles of one step of the sum: multiplications, loads or their latency, the next cache."""
    beyond = 0.35 * vectors if panel > FIRST_CACHE.value else 0.0
    if panel > SECOND_CACHE.value:
        beyond += 0.35 * vectors
    return max(rows * vectors * 0.5, (rows + vectors) * 0.6, 4.0) + beyond + 0.02 * (rows + vectors)


def _order(extent: Extent, packed: bool) -> tuple[str, bool]:
    """The order of loops, and whether to prefetch the next panel."""
    right = (extent.columns or OPEN.value) * (extent.depth or OPEN.value) * extent.nbytes
    rows = _known(extent.outer) * _known(extent.high) * _known(extent.wide)
    if rows == 1:
        return "panels", False
    if right < SMALL_RIGHT.value:
        return "tiles", False
    if extent.outer == 1 and extent.left <= SMALL_LEFT.value:
        return "panels", packed
    return "blocks", packed


def _fitting(extent: Extent, high: int) -> int:
    """Tiles of rows that read no more of the left operand than half of the second cache."""
    wide = _known(extent.wide)
    apart = SECOND_CACHE.value // 2 // (_known(extent.depth) * high * wide * extent.nbytes or 1)
    together = (SECOND_CACHE.value // 2 - extent.window) // (high * extent.row or 1)
    return max(1, apart, together)


def _known(size: int | None) -> int:
    return OPEN.value if size is None else size


def _block(extent: Extent, panel: int, high: int, order: str) -> int:
    """Tiles of rows in a unit: few enough to share the work, and to fit the second cache."""
    tiles = max(1, -(-_assumed_high(extent) // high))
    panels = 1 if order == "tiles" else -(-(extent.columns or OPEN.value) // panel)
    depth, columns = extent.depth or OPEN.value, extent.columns or OPEN.value
    a_tile = 2 * depth * columns * high * max(1, _known(extent.wide))
    shared = a_tile * tiles // SHARED_WORK.value
    wanted = max(1, min(UNITS.value // (panels * max(1, _known(extent.outer))), shared))
    block = max(1, -(-tiles // wanted), -(-UNIT_WORK.value * panels // a_tile))
    if order == "blocks":
        block = min(block, _fitting(extent, high))
    return min(block, tiles) if extent.high is not None else block


def known(size: Size) -> int | None:
    """A size that is a number; None for an open one."""
    return size if isinstance(size, int) else None


def assumed(size: Size) -> int:
    """A size, or what an open one is assumed to be."""
    return size if isinstance(size, int) else OPEN.value


def extent(spec: Contraction) -> Extent:
    """The sizes of a contraction that decide its tiling."""
    *outer, high, wide = [Axis(1), *spec.rows, *([Axis(1)] if len(spec.rows) < 2 else [])]
    outer_rows = [axis.count for axis in outer]
    nbytes = spec.types["a"].nbytes
    window = _span([wide, *spec.sums]) * nbytes
    return Extent(
        known(size_product(outer_rows)), known(high.count), known(wide.count),
        known(spec.columns.count), known(size_product(axis.count for axis in spec.sums)),
        known(spec.sums[-1].count), _span([*spec.rows, *spec.sums]) * nbytes, window,
        abs(assumed(high.stride("a"))) * nbytes, spec.element.nbytes, divisor(high.count),
        _paged(spec, high),
    )  # fmt: skip


def _paged(spec: Contraction, high: Axis) -> int:
    """The outputs, and the operands they are combined with, whose rows share cache sets."""
    names = [*spec.outputs, *results_read(spec, high)]
    steps = (assumed(high.stride(name)) * spec.types[name].nbytes for name in names)
    return sum(step != 0 and step % PAGE == 0 for step in steps)


def _span(axes: Sequence[Axis]) -> int:
    """Elements of the left operand from the first to the last one that some axes reach."""
    return 1 + sum((assumed(axis.count) - 1) * abs(assumed(axis.stride("a"))) for axis in axes)
