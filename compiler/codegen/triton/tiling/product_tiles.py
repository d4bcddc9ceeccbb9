"""Chooses the tiles of a matmul kernel, and the parts of its K range, for a device.

The nearest measured product decides (`measured`), where there is one. Else the tile is the largest
of which there are enough programs (`tiles`), and a product of few tiles is split along K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.analysis import store_roots
from compiler.codegen.kernel.body import MatmulBody, Source
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.codegen.triton.cost import operation_count
from compiler.codegen.triton.expressions import power_of_two
from compiler.codegen.triton.tiling.measured import (
    DeviceTiles,
    MeasuredProduct,
    ProductSizes,
    measured_choices,
)
from compiler.codegen.triton.tiling.schedules import size_hint
from compiler.codegen.triton.tiling.strides import WINDOWS, contiguous_run, product_form
from compiler.codegen.triton.tiling.tiles import (
    BF16X6,
    HALF,
    HALF_FACTORS,
    HALF_OF_SHORT_RUNS,
    MANY_ROWS,
    MAX_INNER,
    MIN_SIDE,
    MOST_SUMMED,
    SINGLE,
    SINGLE_BY_PARTS,
    STEPS_BY_PARTS,
    WIDE,
    ProductTile,
    TileChoice,
    choices,
    few_rows,
    step_tiles,
)
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

TARGET_PROGRAMS = threshold(
    "split_product_programs", 512, "programs",
    "a product on a GPU is split along K while there are fewer", small=6,
)  # fmt: skip

_SPLIT_TILE = ProductTile(64, 64, 64)
"""The tile by whose number the parts of a split product are counted."""

MIN_SPLIT_ITERATIONS = threshold(
    "split_iterations", 512, "iterations along K",
    "a part of a split product has at least so many", small=8,
)  # fmt: skip
MIN_SPLIT_HALF = threshold(
    "split_half", 2048, "the reduced size",
    "a shorter product in half precision takes no longer than the launch that would add its parts",
    small=16,
)  # fmt: skip
MAX_SPLITS = threshold("splits", 32, "parts", "a product is split into at most so many", small=3)

MIN_DEPTH_OF_BYTES = 32
"""Smallest K range of a tile of int8 that `tl.dot` accepts."""

MIN_RUN = 8
"""Adjacent elements of a factor, 16 bytes of half precision, that one access loads."""


@dataclass(frozen=True)
class ProductTiling:
    """The tiles of a kernel whose dot products are `dots`; `precision` is that of float32 ones."""

    kernel: MatmulBody
    dots: Sequence[Expr]
    device: DeviceTiles
    precision: str = "ieee"

    def split_count(self) -> int:
        """The number of split-K parts for a stack of products; 1 if sizes are dynamic.

        For 128 × 768 results in half precision, an H200 took 3.8 µs for K = 768 and 6.6 in two
        parts, 13.8 for K = 3072 and 9.7 in four.
        """
        *stack, rows, columns = self.kernel.shape
        if any(isinstance(size, Dim) for size in self.kernel.shape):
            return 1
        inner = size_hint(self.kernel.loops[0])
        measured = self._nearest(size_hint(rows), splits=True)
        is_short = not is_wide(self.dots[0]) and inner < MIN_SPLIT_HALF.value
        if is_short and (measured is None or measured.sizes.inner > inner):
            return 1
        if measured is not None:
            return min(measured.split, max(1, inner // MAX_INNER))
        parts = TARGET_PROGRAMS.value // max(_SPLIT_TILE.count(stack, size_hint(rows), columns), 1)
        return max(1, min(parts, inner // MIN_SPLIT_ITERATIONS.value, MAX_SPLITS.value))

    def choices(self) -> list[TileChoice]:
        """The tile for each number of rows, no larger than the product."""
        *stack, rows, columns = self.kernel.shape
        rule = choices(self._tiles(), stack, rows, columns)
        rule = few_rows(rule, rows) if any(map(is_wide, self.dots)) else rule
        chosen = _with_parts(measured_choices(rule, self._measured_tile, rows))
        least = MIN_DEPTH_OF_BYTES if any(map(of_bytes, self.dots)) else MIN_SIDE
        sizes = rows, columns, self.kernel.loops[0]
        fitting = [replace(each, tile=each.tile.fit(*sizes, least)) for each in chosen]
        larger = [*(each.tile for each in fitting[1:]), None]
        return [each for each, tile in zip(fitting, larger, strict=True) if each.tile != tile]

    def step_choices(self) -> list[TileChoice]:
        """The tiles of a product of each step of a loop: for few rows, those summed at once."""
        if not self._is_single:
            return self.choices()
        *_, rows, columns = self.kernel.shape
        inner, by_parts = self.kernel.loops[0], BF16X6 in self.device.float32
        is_short = isinstance(inner, int) and inner <= MOST_SUMMED.value
        if len(self.dots) == 1 and is_short and self._is_along_k():
            return _with_parts(step_tiles(size_hint(inner), by_parts))
        if by_parts:
            found = _with_parts(list(STEPS_BY_PARTS))
        elif len(self.dots) > 1:
            return self.choices()
        else:
            found = few_rows([TileChoice(None, MANY_ROWS)], rows)
        return [replace(each, tile=each.tile.fit(rows, columns, inner)) for each in found]

    def _is_along_k(self) -> bool:
        """Whether elements of the right factor are adjacent along K only."""
        (load, *others) = [
            part for part in all_parts([self.dots[0].parts()[1]]) if part.fn == "load"
        ]
        offset = self._offset(load)
        columns = len(self.kernel.shape) - 1
        along = contiguous_run(offset, None, 1)
        return not others and along > contiguous_run(offset, columns, None)

    # ---- measured tiles ----

    def _measured_tile(self, rows: int) -> ProductTile | None:
        """The tile of the nearest measured product with as many rows."""
        is_dynamic = any(isinstance(size, Dim) for size in self.kernel.shape)
        measured = self._nearest(rows, splits=not is_dynamic)
        if measured is None:
            return None
        values = [store.value for store in self.kernel.stores]
        return measured.tile.with_room() if operation_count(values) else measured.tile

    def _nearest(self, rows: int, splits: bool) -> MeasuredProduct | None:
        """The measured product that is nearest to this one with a number of rows.

        Matrices whose sums differ in length are taken as one whose sum has all their lengths.
        """
        *stack, _, columns = self.kernel.shape[self.kernel.parts > 1 :]
        arithmetics, form = self._arithmetics(), product_form(self.kernel, self.dots[0])
        if not arithmetics or not form:
            return None
        sides = map(size_hint, (columns, self.kernel.loops[0]))
        sizes = ProductSizes(size_hint(product(stack)), rows, *sides)
        if (length := self.kernel.total_length) is not None:
            sizes = replace(sizes, stack=1, inner=size_hint(length))
        return self.device.table.nearest(arithmetics, form, sizes, splits=splits)

    def _arithmetics(self) -> tuple[str, ...]:
        """How the products may be multiplied, of those that were measured."""
        if len(self.dots) > 1 or of_bytes(self.dots[0]):
            return ()
        if self._is_single:
            return self.device.float32
        has_long_runs = not is_wide(self.dots[0]) and self._has_long_runs()
        return (HALF_FACTORS,) if has_long_runs else ()

    # ---- the rule ----

    def _tiles(self) -> Sequence[ProductTile]:
        """The tiles to choose from, for the types of the factors."""
        if len(self.dots) > 1:
            columns = max(MIN_SIDE, WIDE[0].columns // power_of_two(len(self.dots)))
            return [replace(WIDE[0], columns=columns)]
        if self._is_single:
            if BF16X6 in self.device.float32:
                return self._by_parts()
            return SINGLE[:-1] if self._draws() else SINGLE
        if is_wide(self.dots[0]):
            return WIDE
        return HALF if self._has_long_runs() else HALF_OF_SHORT_RUNS

    def _by_parts(self) -> Sequence[ProductTile]:
        """The tiles of float32 parts, with more warps where addresses take more registers."""
        *small, large = SINGLE_BY_PARTS
        over_windows = product_form(self.kernel, self.dots[0]).startswith(WINDOWS)
        return [*small, replace(large, warps=2 * large.warps) if over_windows else large]

    @property
    def _is_single(self) -> bool:
        """Whether factors are float32 that is not rounded."""
        return factor_type(self.dots[0]) is DType.FP32 and self.precision == "ieee"

    def _draws(self) -> bool:
        """Whether random numbers are drawn after the product, which need registers."""
        parts = all_parts(store_roots(self.kernel.stores))
        return any(part.fn in ("uniform", "normal") for part in parts)

    def _has_long_runs(self) -> bool:
        """Whether elements of the left factor are adjacent in memory, along K or along rows."""
        loads = [part for part in all_parts([self.dots[0].parts()[0]]) if part.fn == "load"]
        return all(self._run(load) >= MIN_RUN for load in loads)

    def _offset(self, load: Expr) -> list[tuple[Term, Size]]:
        shape = cast(Source, load.extra).shape
        return self.kernel.joined(load.args[: len(shape)], shape)

    def _run(self, load: Expr) -> int:
        offset = self._offset(load)
        rows = len(self.kernel.shape) - 2
        return max(contiguous_run(offset, None, 0), contiguous_run(offset, rows, None))


def _with_parts(chosen: list[TileChoice]) -> list[TileChoice]:
    """The choices with the parts of their factors, if some tile divides them."""
    if all(each.tile.arithmetic != BF16X6 for each in chosen):
        return chosen
    parts = [3 if each.tile.arithmetic == BF16X6 else 1 for each in chosen]
    return [
        replace(each, tile=replace(each.tile, parts=n))
        for each, n in zip(chosen, parts, strict=True)
    ]


def split_length(inner: Size, parts: int) -> Size:
    """The K range of one part of a product: a multiple of every tile's."""
    length = (inner + parts - 1) // parts
    return (length + MAX_INNER - 1) // MAX_INNER * MAX_INNER


def factor_type(dot: Expr) -> DType:
    """The type of a product's left factor."""
    return cast(Expr, dot.args[0]).dtype


def is_wide(dot: Expr) -> bool:
    """True for float32 and float64, of which larger K tiles do not fit into registers."""
    return factor_type(dot).itemsize > 2


def of_bytes(dot: Expr) -> bool:
    """True for factors of int8, whose products tensor cores sum in int32."""
    return factor_type(dot) is DType.INT8
