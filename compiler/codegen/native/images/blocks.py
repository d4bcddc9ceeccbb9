"""Transpositions that move the last axis, in blocks that fit the vector registers."""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.native.images.register_transpose import block_size, part, transpose_block
from compiler.codegen.native.images.transposition import Transposition, Walk, chunks
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import Index, Value
from compiler.codegen.native.products.nest import named
from compiler.ir.dims import product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

COLUMNS = threshold(
    "transpose_columns", 4, "blocks", "a unit of a transposition has so many along X's last axis",
    small=1,
)  # fmt: skip
ROWS = threshold(
    "transpose_rows", 16, "blocks", "a unit of a transposition has so many along Out's last axis",
    small=1,
)  # fmt: skip


def block_kernel(given: Transposition) -> NativeKernel:
    """Return the kernel that transposes blocks."""
    walk, block = Walk(given), block_size(given.machine, given.element)
    across, along = len(given.order) - 1, given.order[-1]
    outer = [axis for axis in given.order if axis not in (across, along)]
    wide, tall = COLUMNS.value * block, ROWS.value * block

    def unit(number: Value, _: list[Value]) -> list[Value]:
        n = walk.n
        rest, down = n.divmod(number, n.ceil_div(walk.sizes[along], tall))
        rest, right = n.divmod(rest, n.ceil_div(walk.sizes[across], wide))
        rows = _Span.make(walk, given, along, n.mul(down, tall), tall, block)
        columns = _Span.make(walk, given, across, n.mul(right, wide), wide, block)
        _Blocks(walk, given, rows, columns, walk.offsets(rest, outer)).emit()
        return []

    walk.f.loop_if_any(walk.first, walk.last, 1, unit)
    units = chunks(given.sizes[along], tall) * chunks(given.sizes[across], wide)
    return NativeKernel(
        [named(walk.f)], units * product(given.sizes[axis] for axis in outer), 0, given.nbytes
    )


@dataclass(frozen=True)
class _Span:
    """Positions `start` to `end` of an axis; from `whole` on, fewer than a block.

    `rest` is their number at the end of an axis of known size, None for an open size. `has_whole`
    is false if the axis is shorter than a block.
    """

    axis: int
    start: Index
    whole: Index
    end: Index
    rest: int | None
    has_whole: bool

    @staticmethod
    def make(
        walk: Walk, given: Transposition, axis: int, start: Index, length: int, block: int
    ) -> _Span:
        """At most `length` positions from `start` on."""
        n, size = walk.n, given.sizes[axis]
        end = n.min(n.add(start, length), walk.sizes[axis])
        whole = n.sub(end, n.mod(end, block))
        if isinstance(size, int):
            return _Span(axis, start, whole, end, size % block, size >= block)
        return _Span(axis, start, whole, end, None, True)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a unit; `base` are the offsets in X and Out of its outer position."""

    walk: Walk
    given: Transposition
    rows: _Span
    columns: _Span
    base: tuple[Index, Index]

    @property
    def block(self) -> int:
        """Rows and columns of a block."""
        return block_size(self.given.machine, self.given.element)

    def emit(self) -> None:
        """Emit all rows."""
        self._span(self.rows, self._row, lambda row: self._single_row(row))

    def _span(
        self, span: _Span, blocks: Callable[[Index, int], object],
        single: Callable[[Value], object],
    ) -> None:  # fmt: skip
        """Emit `blocks(at, count)` for whole blocks and a known rest, else `single(at)`."""
        f, n = self.walk.f, self.walk.n

        def whole(at: Value, _: list[Value]) -> list[Value]:
            blocks(at, self.block)
            return []

        def one(at: Value, _: list[Value]) -> list[Value]:
            single(at)
            return []

        if span.has_whole:
            f.loop_if_any(span.start, span.whole, self.block, whole)
        if span.rest is None:
            f.loop_if_any(span.whole, span.end, 1, one)
        elif span.rest:
            rest = span.rest
            some = f.compare("ult", n.value(span.whole), n.value(span.end))
            f.when(some, lambda: blocks(span.whole, rest))

    def _row(self, row: Index, count: int) -> None:
        """Emit the blocks of some rows."""
        self._span(
            self.columns,
            lambda column, width: self._transpose(row, count, column, width),
            lambda column: self._single_column(row, count, column),
        )

    def _single_row(self, row: Value) -> None:
        """Copy a row element by element."""

        def one(column: Value, _: list[Value]) -> list[Value]:
            self._copy(row, column)
            return []

        self.walk.f.loop_if_any(self.columns.start, self.columns.end, 1, one)

    def _single_column(self, row: Index, count: int, column: Value) -> None:
        """Copy a column of some rows element by element."""

        def one(at: Value, _: list[Value]) -> list[Value]:
            self._copy(self.walk.n.add(row, at), column)
            return []

        self.walk.f.loop(0, count, 1, one)

    def _copy(self, row: Index, column: Index) -> None:
        """Copy one element."""
        f = self.walk.f
        source, target = self._at(row, column)
        f.store(f.load(self.given.element, source), target)

    def _at(self, row: Index, column: Index) -> tuple[Value, Value]:
        """Addresses in both arrays of a position."""
        walk = self.walk
        offsets = walk.moved(self.base, self.rows.axis, row)
        return walk.pointers(walk.moved(offsets, self.columns.axis, column))

    def _transpose(self, row: Index, height: int, column: Index, width: int) -> None:
        """Transpose a block of known size."""
        f, walk, size = self.walk.f, self.walk, self.given.element.nbytes
        source, target = self._at(row, column)
        down = walk.from_strides[self.rows.axis]
        piece = part(self.given.machine, self.given.element, width)
        rows = [piece.load(f, f.address(source, walk.n.mul(k, down), size)) for k in range(height)]
        right = walk.to_strides[self.columns.axis]
        piece = part(self.given.machine, self.given.element, height)
        for k, transposed_row in enumerate(transpose_block(f, rows, width)):
            piece.store(f, transposed_row, f.address(target, walk.n.mul(k, right), size))
