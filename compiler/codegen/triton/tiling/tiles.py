"""Chooses the tile of a matrix product that a program computes, by the sizes of the product.

Large tiles load fewer bytes for each multiplication; small ones occupy all multiprocessors if the
result is small, and then a deeper pipeline hides the latency of loads. The constants are those that
were fastest for the products of ResNet-50 and BERT on an NVIDIA H200 (docs/gpu.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from compiler.codegen.triton.expressions import power_of_two
from compiler.codegen.triton.tiling.schedules import WARPS, size_hint
from compiler.ir.dims import Dim, Size, product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

STAGES = 3
"""Stages of Triton's software pipeline by default."""

ENOUGH_PROGRAMS = threshold(
    "product_programs", 96, "programs",
    "a product on a GPU has larger tiles if there are still so many", small=2,
)  # fmt: skip

MIN_SIDE = 16
"""Smallest side of a tile that `tl.dot` accepts."""


MOST_SUMS, MOST_WARPS, THREADS = 64, 8, 32
"""Sums of a thread, and warps, of a tile with an epilogue; threads of a warp."""

MAX_INNER = 128
"""Largest step along K of a tile; the K range of a split's parts is a multiple of it."""

HALF_FACTORS, FMA, BF16X6 = ARITHMETICS = ("half", "fma", "bf16x6")
"""How factors are multiplied: in half precision, or as float32: exactly, or by bfloat16 parts."""


@dataclass(frozen=True)
class ProductTile:
    """Rows and columns of a result, the step along K, warps of a program, pipeline stages.

    `arithmetic` is how its factors are multiplied, of ARITHMETICS; empty for other factors. `parts`
    are the bfloat16 parts of a float32 factor, 1 if it is not divided, in kernels of which some
    tile divides factors; else 0.
    """

    rows: int
    columns: int
    inner: int
    warps: int = WARPS
    stages: int = STAGES
    arithmetic: str = ""
    parts: int = 0

    def fit(
        self, rows: Size, columns: Size, inner: Size, least_inner: int = MIN_SIDE
    ) -> ProductTile:
        """The tile no larger than a product requires; symbolic sizes require it all."""
        return replace(
            self,
            rows=_side(rows, self.rows, MIN_SIDE),
            columns=_side(columns, self.columns, MIN_SIDE),
            inner=_side(inner, self.inner, least_inner),
        )

    def with_room(self) -> ProductTile:
        """A tile whose threads have registers for more than their sums, for an epilogue.

        A thread of the others has 128 sums, half of its registers: an epilogue would spill.
        """
        if self.rows * self.columns <= MOST_SUMS * THREADS * self.warps:
            return self
        if self.warps < MOST_WARPS:
            return replace(self, warps=2 * self.warps)
        return replace(self, columns=self.columns // 2)

    def constants(self) -> dict[str, int]:
        """The constants of a kernel with this tile."""
        sides = {"ROWS": self.rows, "COLUMNS": self.columns, "INNER": self.inner}
        return sides | ({"PARTS": self.parts} if self.parts else {})

    def options(self) -> dict[str, int]:
        """The launch options that differ from the defaults."""
        options = {"num_warps": (self.warps, WARPS), "num_stages": (self.stages, STAGES)}
        return {name: value for name, (value, usual) in options.items() if value != usual}

    def count(self, stack: Sequence[Size], rows: int, columns: Size) -> int:
        """The number of tiles of a stack of results."""
        across = -(-size_hint(columns) // self.columns)
        return size_hint(product(stack)) * -(-rows // self.rows) * across


HALF = (
    ProductTile(64, 32, 128, stages=4, arithmetic=HALF_FACTORS),
    ProductTile(64, 64, 64, stages=4, arithmetic=HALF_FACTORS),
    ProductTile(64, 128, 64, arithmetic=HALF_FACTORS),
)
"""Tiles of factors that matrix units multiply, the smallest first."""

HALF_OF_SHORT_RUNS = (
    ProductTile(64, 32, 32, arithmetic=HALF_FACTORS),
    ProductTile(64, 64, 32, arithmetic=HALF_FACTORS),
)
"""The same where few elements along K are adjacent in memory: windows of images of few channels."""

SINGLE = (
    ProductTile(32, 64, 16, arithmetic=FMA),
    ProductTile(64, 64, 16, arithmetic=FMA),
    ProductTile(128, 64, 16, arithmetic=FMA),
)
"""Tiles of float32 without matrix units."""

SINGLE_BY_PARTS = (
    ProductTile(32, 64, 16, arithmetic=FMA),
    ProductTile(64, 64, 32, arithmetic=FMA),
    ProductTile(128, 64, 32, arithmetic=BF16X6),
)
"""Tiles of float32 where matrix units multiply its bfloat16 parts faster."""

WIDE = (ProductTile(64, 64, 16),)
"""Tiles of float64, and of float32 rounded to TF32."""

FEW_ROWS = ProductTile(16, 32, 32, stages=4, arithmetic=FMA)
"""The tile of products without matrix units of at most as many rows, such as steps of an LSTM.

They are bound by the latency of loads: its narrow columns make more programs, its long steps along
K fewer of them in sequence.
"""


MOST_SUMMED = threshold(
    "summed_inner", 4096, "the reduced size",
    "a longer product of each step of a recurrence on a GPU is a loop along K", small=32,
)  # fmt: skip
LEAST_SUMMED = 256
"""A tile summed at once has at least so many products a result, several for each thread.

Of one alone, the threads that exchange sums would each fuse their own multiplication with the
addition, round differently and go on with different sums.
"""
MANY_ROWS = ProductTile(64, 32, 16, arithmetic=FMA)
"""The tile of products of a step of a recurrence with more rows than are summed at once."""


@dataclass(frozen=True)
class TileChoice:
    """A tile for results of at most `most` rows; for all larger ones if it is None."""

    most: int | None
    tile: ProductTile


STEPS_BY_PARTS = (
    TileChoice(16, ProductTile(16, 16, 32, stages=4, arithmetic=BF16X6)),
    TileChoice(None, ProductTile(64, 16, 32, stages=4, arithmetic=BF16X6)),
)
"""Tiles of float32 products of each step of a recurrence, where matrix units multiply its parts.

On an H200, 50 steps of an LSTM of 256 units and 16 sequences took 0.20 ms with tiles of 8 units on
matrix units (as three products of TF32 parts), 0.54 in FMA instructions.
"""


def step_tiles(inner: int, by_parts: bool) -> list[TileChoice]:
    """Tiles of float32 products of each step of a recurrence along K, for numbers of rows.

    A step is bound by the latency of loads. Of few rows and columns, a program issues all loads of
    a tile at once, and sums over the whole reduced size. On an H200, gradients of an LSTM of 256
    units and 16 sequences take 6.5 µs a step, and 11.4 with tiles that tensor cores multiply; with
    512 units and 64 sequences, tensor cores take 22 and sums 50.
    """
    few = ProductTile(4, 2, _side(inner, MOST_SUMMED.value, LEAST_SUMMED), arithmetic=FMA)
    if by_parts:
        many = STEPS_BY_PARTS[-1].tile
        many = replace(many, inner=_side(inner, many.inner, MIN_SIDE))
        return [TileChoice(16, few), TileChoice(None, many)]
    more = replace(few, columns=4, warps=2 * WARPS)
    return [TileChoice(16, few), TileChoice(64, more), TileChoice(None, MANY_ROWS)]


def choices(
    tiles: Sequence[ProductTile], stack: Sequence[Size], rows: Size, columns: Size
) -> list[TileChoice]:
    """The tiles that some number of rows requires, the one for the fewest rows first.

    One, if the number is known.
    """
    if not isinstance(rows, Dim):
        return [TileChoice(None, _chosen(tiles, stack, rows, columns))]
    selected: list[TileChoice] = []
    least = size_hint(rows, 1)
    for tile, larger in pairwise(tiles):
        most = _most_rows(larger, stack, columns)
        if most >= least and (not selected or most > (selected[-1].most or 0)):
            selected.append(TileChoice(most, tile))
    return [*selected, TileChoice(None, tiles[-1])]


def _chosen(
    tiles: Sequence[ProductTile], stack: Sequence[Size], rows: int, columns: Size
) -> ProductTile:
    """The largest tile of which there are enough, or the smallest."""
    enough = (t for t in reversed(tiles) if t.count(stack, rows, columns) >= ENOUGH_PROGRAMS.value)
    return next(enough, tiles[0])


def _most_rows(tile: ProductTile, stack: Sequence[Size], columns: Size) -> int:
    """The most rows of which there are too few of these tiles."""
    in_a_row = max(1, tile.count(stack, 1, columns))
    return (-(-ENOUGH_PROGRAMS.value // in_a_row) - 1) * tile.rows


def few_rows(found: Sequence[TileChoice], rows: Size) -> list[TileChoice]:
    """The choices, and before them the one for few rows; that one alone if there are no more."""
    few = replace(FEW_ROWS, columns=min(FEW_ROWS.columns, found[0].tile.columns))
    if not isinstance(rows, Dim):
        return [TileChoice(None, few)] if rows <= few.rows else list(found)
    return [*([TileChoice(few.rows, few)] if size_hint(rows, 1) <= few.rows else []), *found]


def _side(size: Size, most: int, least: int) -> int:
    if isinstance(size, Dim):
        return most
    return max(least, min(most, power_of_two(size)))
