"""Measured tiles of matrix products: the fastest ones on a GPU, by the sizes of a product.

A table is a text file with a line for each measured product: what it multiplies, how its factors
lie in memory, its sizes, the fastest tile, and the microseconds that it took. `sm_80.txt` and
`sm_90.txt` next to this module are those of NVIDIA's compute capabilities.

    # arithmetic form  stack rows columns inner  tile      stages warps split  microseconds library
    half         NN        1 2048     768   768  64x64x64       4     4     1           7.9     6.7

`half` are factors in half precision; float32 ones are multiplied as `bf16x6` (six products of
bfloat16 parts on tensor cores) or `fma` (exactly). The form is how the left and the right factor
lie in memory, N if rows are contiguous and T if columns are, with `windows-` before it if the
reduction runs over the windows of images. The last column is the time of the vendor's library for
the same product; `-` is a time that was not measured.

    memory  4038 1176 2.2

is what other kernels take: the GB/s of a copy and of sums of columns, and the microseconds of a
launch besides those of its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from itertools import pairwise
from math import log2
from pathlib import Path

from compiler.codegen.triton.tiling.schedules import size_hint
from compiler.codegen.triton.tiling.tiles import (
    ARITHMETICS,
    BF16X6,
    ENOUGH_PROGRAMS,
    FMA,
    MAX_INNER,
    ProductTile,
    TileChoice,
)
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass

NEAR = 3.0
"""The largest distance at which a measured product decides: that of eight times as many results."""

MOST = 1 << 24
"""Numbers of results are compared up to this one: more fill any GPU alike."""

MANY_ROWS = 1 << 20
"""The number of rows for which the tile of all larger products is chosen."""

_FORM = re.compile(r"(windows-)?[NT][NT]")
_TILE = re.compile(r"(\d+)x(\d+)x(\d+)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_FIELDS = (
    "arithmetic", "form", "stack", "rows", "columns", "inner", "tile", "stages", "warps", "split",
    "microseconds", "library",
)  # fmt: skip

_TABLES = {
    **dict.fromkeys(("cuda:80", "cuda:86", "cuda:87", "cuda:89", "cuda:120", "cuda:121"), "sm_80"),
    **dict.fromkeys(("cuda:90", "cuda:100", "cuda:103"), "sm_90"),
}
"""The table of a GPU: its own, or that of an older one with its instructions and at most its shared
memory."""

_BY_PARTS = ("cuda:80", "cuda:90", "cuda:100")
"""GPUs whose tensor cores multiply bfloat16 more than ten times as fast as others float32.

Those of workstations (8.6, 8.9, 12.0) do so two to four times as fast: six products are no gain.
"""


@dataclass(frozen=True)
class ProductSizes:
    """The sizes of a stack of products: matrices, their rows and columns, the reduced size."""

    stack: int
    rows: int
    columns: int
    inner: int

    @property
    def all(self) -> tuple[int, int, int, int]:
        """The four sizes."""
        return self.stack, self.rows, self.columns, self.inner

    @property
    def elements(self) -> int:
        """The number of results."""
        return self.stack * self.rows * self.columns

    @property
    def count(self) -> int:
        """The number of multiplications."""
        return self.elements * self.inner

    def distance(self, other: ProductSizes) -> float:
        """The binary logarithms of the ratios of results and of K, plus half that of columns.

        As many results are as many programs, whatever their sides.

        >>> ProductSizes(1, 64, 64, 64).distance(ProductSizes(1, 64, 128, 32))
        2.5
        """
        results = _ratio(min(self.elements, MOST), min(other.elements, MOST))
        columns = _ratio(self.columns, other.columns)
        return results + _ratio(self.inner, other.inner) + columns / 2


@dataclass(frozen=True)
class MeasuredProduct:
    """A line of a table: a product, its fastest tile, the parts of a split reduction, and times.

    Times are in microseconds, None if unknown; `library` is that of the vendor's library.
    """

    form: str
    sizes: ProductSizes
    tile: ProductTile
    split: int
    microseconds: float | None
    library: float | None

    def suits(self, sizes: ProductSizes) -> bool:
        """True if a product of other sizes has enough programs with its tile, or as many."""
        return self._programs(sizes) >= min(self._programs(self.sizes), ENOUGH_PROGRAMS.value)

    def _programs(self, sizes: ProductSizes) -> int:
        return self.split * self.tile.count((sizes.stack,), sizes.rows, sizes.columns)

    def __str__(self) -> str:
        """The line."""
        tile, sizes = self.tile, " ".join(map(str, self.sizes.all))
        shape = f"{tile.rows}x{tile.columns}x{tile.inner} {tile.stages} {tile.warps} {self.split}"
        times = ("-" if t is None else f"{t:g}" for t in (self.microseconds, self.library))
        return f"{tile.arithmetic} {self.form} {sizes} {shape} {' '.join(times)}"


@dataclass(frozen=True)
class MeasuredMemory:
    """The GB/s at which a GPU copies and sums columns, and the microseconds of a launch besides."""

    copies: float
    sums: float
    launch: float

    def microseconds(self, nbytes: int, summed: int, launches: int) -> float:
        """The time of kernels that move bytes, and sum the columns of others."""
        return nbytes / (self.copies * 1e3) + summed / (self.sums * 1e3) + launches * self.launch


@dataclass(frozen=True)
class TileTable:
    """Measured products of a GPU, in the order of its file, and its memory if that was measured."""

    products: tuple[MeasuredProduct, ...] = ()
    memory: MeasuredMemory | None = None

    def nearest(
        self, arithmetics: Collection[str], form: str, sizes: ProductSizes, *, splits: bool
    ) -> MeasuredProduct | None:
        """The measured product whose sizes are nearest, None if all are farther than `NEAR`.

        Tiles of which a smaller product has too few are left out, so that it keeps a device busy.
        Of equally near ones that with the most multiplications, then the fastest. Without `splits`,
        products whose reduction is split are left out.
        """
        candidates = (
            product
            for product in self.products
            if product.form == form
            and product.tile.arithmetic in arithmetics
            and (splits or product.split == 1)
            and product.sizes.distance(sizes) <= NEAR
            and product.suits(sizes)
        )
        return min(
            candidates,
            key=lambda it: (it.sizes.distance(sizes), -it.sizes.count, it.microseconds or 0.0),
            default=None,
        )


def _ratio(a: int, b: int) -> float:
    """The binary logarithm of the ratio of two sizes, which is not negative."""
    return abs(log2(max(1, a) / max(1, b)))


def parse(lines: Iterable[str], file: str) -> TileTable:
    """Read a table; blank lines and what follows `#` are skipped.

    Raises ValueError naming file and line for one that is no measured product.
    """
    products, memory = list[MeasuredProduct](), None
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        try:
            if fields[:1] == ["memory"]:
                memory = _memory(fields[1:])
            elif fields:
                products.append(_product(fields))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from None
    return TileTable(tuple(products), memory)


def _memory(fields: list[str]) -> MeasuredMemory:
    """What the numbers of a line say of a GPU's memory."""
    numbers = [number for number in map(_time, fields) if number is not None]
    if len(numbers) != 3:
        raise ValueError(f"expected the GB/s of copies and sums, and a launch's time: {fields}")
    return MeasuredMemory(*numbers)


def _product(fields: list[str]) -> MeasuredProduct:
    """The product of a line's fields."""
    if len(fields) != len(_FIELDS):
        raise ValueError(f"expected {len(_FIELDS)} fields ({', '.join(_FIELDS)}): {len(fields)}")
    arithmetic, form, stack, rows, columns, inner, tile, stages, warps, split, took, library = (
        fields
    )
    shape = _TILE.fullmatch(tile)
    if arithmetic not in ARITHMETICS:
        raise ValueError(f"{arithmetic!r} is none of {', '.join(ARITHMETICS)}")
    if not _FORM.fullmatch(form) or shape is None:
        raise ValueError(f"expected a form such as NT and a tile such as 64x64x32: {form} {tile}")
    sides = [_positive(side, power_of_two=True) for side in shape.groups()]
    if sides[-1] > MAX_INNER:
        raise ValueError(f"expected at most {MAX_INNER} along K: {tile}")
    return MeasuredProduct(
        form,
        ProductSizes(*map(_positive, (stack, rows, columns, inner))),
        ProductTile(
            *sides, warps=_positive(warps, True), stages=_positive(stages), arithmetic=arithmetic
        ),
        _positive(split),
        _time(took),
        _time(library),
    )


def _positive(text: str, power_of_two: bool = False) -> int:
    """A number from 1 to 10^9."""
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if not number or (power_of_two and number & (number - 1)):
        raise ValueError(f"expected a {'power of two' if power_of_two else 'size'}: {text!r}")
    return number


def _time(text: str) -> float | None:
    """A number of microseconds; None for `-`."""
    if text == "-":
        return None
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(f"expected microseconds: {text!r}")
    return number


@dataclass(frozen=True)
class DeviceTiles:
    """What tiles of a GPU are chosen by: measured products, and the arithmetics of float32 ones.

    By default those of an unknown GPU, for which nothing was measured.
    """

    table: TileTable = TileTable()
    float32: tuple[str, ...] = (FMA,)


@cache
def device_tiles(gpu: str, measured: str = "", exact: bool = False) -> DeviceTiles:
    """The choices for a GPU, such as `cuda:90`, by its shipped table after `measured` products.

    `exact` ones of float32 are not multiplied by parts. Raises ValueError for lines of `measured`
    that are no measured product.
    """
    own = parse(measured.splitlines(), "measured tiles")
    there = {(product.form, product.sizes) for product in own.products}
    shipped = _shipped(_TABLES[gpu]) if gpu in _TABLES else TileTable()
    others = (each for each in shipped.products if (each.form, each.sizes) not in there)
    table = TileTable((*own.products, *others), own.memory or shipped.memory)
    by_parts = gpu in _BY_PARTS and not exact
    return DeviceTiles(table, (FMA, BF16X6) if by_parts else (FMA,))


def _shipped(name: str) -> TileTable:
    path = Path(__file__).parent / f"{name}.txt"
    return parse(path.read_text(encoding="utf-8").splitlines(), path.name)


def measured_choices(
    rule: Sequence[TileChoice], nearest: Callable[[int], ProductTile | None], rows: Size
) -> list[TileChoice]:
    """The choices of a rule, but the measured tile where one is near, for a number of rows.

    Where the number is symbolic, it is rounded up to the next power of two, or limit of the rule.
    """
    if not isinstance(rows, Dim):
        tile = nearest(rows)
        return list(rule) if tile is None else [TileChoice(None, tile)]
    limits = {choice.most for choice in rule if choice.most is not None}
    least = size_hint(rows, 1)
    points = sorted(n for n in limits | {1 << n for n in range(4, 15)} if n >= least) or [least]
    tiles = [(n, nearest(n) or _by_rule(rule, n)) for n in points]
    tiles[-1] = tiles[-1][0], nearest(MANY_ROWS) or rule[-1].tile
    last = [n for (n, tile), (_, larger) in pairwise(tiles) if tile != larger]
    by_limit = dict(tiles)
    return [*(TileChoice(n, by_limit[n]) for n in last), TileChoice(None, tiles[-1][1])]


def _by_rule(rule: Sequence[TileChoice], rows: int) -> ProductTile:
    return next(each.tile for each in rule if each.most is None or rows <= each.most)
