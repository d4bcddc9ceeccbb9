"""Pooling of cells: the whole image, or adaptive means, whose cells may differ in size.

Cell i of `count` on an axis of `size` covers elements i * size // count to the ceiling of
(i + 1) * size / count. A unit of work is some vectors of channels of a cell, or a row of the image
for gradients of means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.pooling import maximum
from compiler.codegen.native.images.results import NO_EPILOGUE, NO_OUTPUT, Opened, Pixel, begin
from compiler.codegen.native.images.vectors import Channels, Piece
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import I32, I64, Function, Index, Type, Value, zero
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import named
from compiler.ir.dims import Size, product
from compiler.support.thresholds import threshold

GROUP = threshold(
    "cell_vectors", 8, "vectors", "a unit of a pooling of cells has so many vectors of channels",
    small=1,
)  # fmt: skip


@dataclass(frozen=True)
class Cells:
    """Images [batch, height, width, C] in `rows` by `columns` cells."""

    batch: Size
    height: Size
    width: Size
    rows: Size
    columns: Size
    channels: Channels

    @property
    def sizes(self) -> tuple[Size, Size, Size, Size]:
        """Height, width, rows and columns."""
        return self.height, self.width, self.rows, self.columns

    @property
    def groups(self) -> int:
        """Groups of channel vectors."""
        return -(-self.channels.vectors // GROUP.value)

    @property
    def name(self) -> str:
        """The geometry as a part of a kernel's name."""
        sizes = "x".join(str(size) if isinstance(size, int) else "n" for size in self.sizes)
        channels = self.channels
        return f"{sizes}_c{channels.count}_{channels.element}_{channels.machine.name}"


def pool_cells(cells: Cells, largest: bool, epilogue: Epilogue = NO_EPILOGUE) -> Steps:
    """The kernel of the maximum or the mean of each cell.

    Operands: "images" [N, H, W, C], "out" [N, rows, columns, C], those of the epilogue, which has
    no `start`. Sums are those of the sums of rows.
    """
    assert not epilogue.start
    name = "pool_cells_max" if largest else "pool_cells_mean"
    kernel = _Kernel.begin(name, cells, ["images"], epilogue)
    reduce = _largest if largest else _mean

    def emit(unit: _Group) -> None:
        values = reduce(kernel, unit)
        for k, (value, piece) in enumerate(zip(values, unit.pieces, strict=True)):
            channel = kernel.n.add(unit.channel, k * cells.channels.lanes)
            places = kernel.k.results.places(unit.pixel, channel, piece, 1)
            kernel.k.results.store([value], places)

    kernel.groups(emit)
    return kernel.steps(product([cells.batch, cells.rows, cells.columns, cells.groups]))


def pool_cells_gradient(cells: Cells, largest: bool) -> Steps:
    """The kernel of the gradient of `pool_cells`.

    Operands: of the maximum "images", of both "d_out" and, written whole, "d_images". The maximum
    is that of the whole image, its first position has the gradient, and a NaN is the maximum.
    """
    if largest:
        arrays = ["images", "d_out", "d_images"]
        kernel = _Kernel.begin("pool_cells_max_gradient", cells, arrays, NO_OUTPUT)
        kernel.groups(lambda unit: _largest_gradient(kernel, unit))
        return kernel.steps(product([cells.batch, cells.groups]))
    kernel = _Kernel.begin("pool_cells_mean_gradient", cells, ["d_out", "d_images"], NO_OUTPUT)
    kernel.units(lambda row: _mean_gradient_row(kernel, row))
    return kernel.steps(product([cells.batch, cells.height]))


@dataclass(frozen=True)
class _Group:
    """Adjacent channel vectors of a cell: their pieces, and the first channel.

    `start` and `end` are its rows and columns, `image` the first pixel of its image, `pixel` that
    of the output.
    """

    pieces: Sequence[Piece]
    channel: Value
    pixel: Pixel
    image: Index
    start: tuple[Index, Index]
    end: tuple[Index, Index]


@dataclass(frozen=True)
class _Kernel:
    """A kernel under construction; `sizes` are height, width, rows and columns."""

    cells: Cells
    k: Opened
    sizes: Sequence[Index]

    @staticmethod
    def begin(name: str, cells: Cells, arrays: Sequence[str], epilogue: Epilogue) -> _Kernel:
        """Begin an entry with arrays, the output and open sizes."""
        label = "_".join(part for part in (name, cells.name, epilogue.label) if part)
        channels = cells.channels
        k = begin(label, arrays, cells.sizes, epilogue, channels.element, channels.count)
        return _Kernel(cells, k, [k.n.of(size) for size in cells.sizes])

    @property
    def f(self) -> Function:
        """The function."""
        return self.k.f

    @property
    def n(self) -> Integers:
        """Its integers."""
        return self.k.n

    @property
    def arrays(self) -> Sequence[Value]:
        """The arrays before the output."""
        return self.k.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        return self.cells.channels.element.nbytes

    def steps(self, units: Size) -> Steps:
        """The finished kernel."""
        cells = self.cells
        work = product([cells.batch, cells.height, cells.width, cells.channels.count])
        kernel = NativeKernel([named(self.f)], units, work, work * self.nbytes)
        return Steps((Call(kernel, self.k.arguments),))

    def units(self, emit: Callable[[Value], object]) -> None:
        """Emit the loop over units."""

        def unit(number: Value, _: list[Value]) -> list[Value]:
            emit(number)
            return []

        self.f.loop_if_any(self.k.first, self.k.last, 1, unit)

    def groups(self, emit: Callable[[_Group], object]) -> None:
        """Emit the loop over groups of channels of cells."""
        channels = self.cells.channels
        whole, rest = divmod(channels.full, GROUP.value)
        last = [channels.piece] * rest + ([channels.rest] if channels.rest else [])

        def unit(number: Value) -> None:
            cell, group = self.n.divmod(number, self.cells.groups)
            full = [channels.piece] * GROUP.value
            if not whole or not last:
                emit(self._group(cell, group, full if whole else last))
                return
            is_full = self.f.compare("ult", self.n.value(group), self.n.value(whole))

            def of(pieces: Sequence[Piece]) -> list[Value]:
                emit(self._group(cell, group, pieces))
                return []

            self.f.choose(is_full, lambda: of(full), lambda: of(last))

        self.units(unit)

    def _group(self, cell: Index, group: Index, pieces: Sequence[Piece]) -> _Group:
        n, channels = self.n, self.cells.channels
        height, width, rows, columns = self.sizes
        rest, x = n.divmod(cell, columns)
        image, y = n.divmod(rest, rows)
        channel = n.value(n.mul(group, GROUP.value * channels.lanes))
        (top, bottom), (left, right) = self.edges(y, height, rows), self.edges(x, width, columns)
        first = n.mul(image, height, width)
        pixel = Pixel(image, y, x, cell)
        return _Group(pieces, channel, pixel, first, (top, left), (bottom, right))

    def edges(self, cell: Index, size: Index, count: Index) -> tuple[Index, Index]:
        """Start and end of a cell on an axis."""
        n = self.n
        if count == 1:
            return 0, size
        after = n.sub(n.add(n.mul(n.add(cell, 1), size), count), 1)
        return n.div(n.mul(cell, size), count), n.div(after, count)

    def pixels(
        self, unit: _Group, carried: Sequence[Value],
        body: Callable[[Value, Index, list[Value]], Sequence[Value]],
        end_row: Callable[[list[Value]], list[Value]] | None = None,
    ) -> list[Value]:  # fmt: skip
        """Emit the loops over a cell's pixels.

        `body` is given the address of a pixel's channels in the first array, its number within the
        image and the carried values; `end_row` replaces those after a row.
        """
        f, n, channels = self.f, self.n, self.cells.channels

        def row(y: Value, held: list[Value]) -> list[Value]:
            first = n.add(n.mul(y, self.sizes[1]), unit.start[1])
            offset = n.add(n.mul(n.add(unit.image, first), channels.count), unit.channel)
            pointer = f.address(self.arrays[0], offset, self.nbytes)

            def pixel(x: Value, inner: list[Value]) -> list[Value]:
                at = f.address(pointer, n.mul(x, channels.count), self.nbytes)
                return list(body(at, n.add(first, x), inner))

            width = n.sub(unit.end[1], unit.start[1])
            state = f.loop_if_any(0, width, 1, pixel, held)
            return end_row(state) if end_row else state

        return f.loop_if_any(unit.start[0], unit.end[0], 1, row, carried)

    def load(self, unit: _Group, pointer: Value) -> list[Value]:
        """Load a pixel's channels."""
        step = self.cells.channels.lanes * self.nbytes
        return [
            piece.load(self.f, self.f.address(pointer, k * step))
            for k, piece in enumerate(unit.pieces)
        ]


def _largest(kernel: _Kernel, unit: _Group) -> list[Value]:
    """The maxima of a cell; -inf for none."""
    f = kernel.f
    start = [f.constant(piece.type, float("-inf")) for piece in unit.pieces]

    def body(pointer: Value, _: Index, held: list[Value]) -> list[Value]:
        loaded = kernel.load(unit, pointer)
        return [maximum(f, old, new) for old, new in zip(held, loaded, strict=True)]

    return kernel.pixels(unit, start, body)


def _mean(kernel: _Kernel, unit: _Group) -> list[Value]:
    """The means of a cell: rows are summed on their own."""
    f, count = kernel.f, len(unit.pieces)
    zeros = [zero(piece.type) for piece in unit.pieces]

    def body(pointer: Value, _: Index, held: list[Value]) -> list[Value]:
        loaded = kernel.load(unit, pointer)
        return [*held[:count], *map(f.add, held[count:], loaded)]

    def end_row(held: list[Value]) -> list[Value]:
        return [*map(f.add, held[:count], held[count:]), *zeros]

    totals = kernel.pixels(unit, [*zeros, *zeros], body, end_row)[:count]
    covered = _share(kernel, unit.start, unit.end)
    both = zip(totals, unit.pieces, strict=True)
    return [f.mul(total, piece.splat(f, covered)) for total, piece in both]


def _share(kernel: _Kernel, start: Sequence[Index], end: Sequence[Index]) -> Value:
    """1 / the number of pixels of a cell."""
    f, n, type = kernel.f, kernel.n, kernel.cells.channels.element
    covered = n.max(n.mul(n.sub(end[0], start[0]), n.sub(end[1], start[1])), 1)
    if isinstance(covered, int):
        return f.constant(type, 1 / covered)
    return f.div(f.constant(type, 1.0), f.convert("sitofp", covered, type))


def _largest_gradient(kernel: _Kernel, unit: _Group) -> None:
    """Find the first maximum of the image, then write its gradient there and zero elsewhere."""
    f, position = kernel.f, I32 if kernel.nbytes == 4 else I64
    count = len(unit.pieces)
    lowest = [f.constant(piece.type, float("-inf")) for piece in unit.pieces]
    none = [zero(piece.type.of(position)) for piece in unit.pieces]

    def find(pointer: Value, number: Index, held: list[Value]) -> list[Value]:
        at = _number(kernel, number, position)
        best, places = list(held[:count]), list(held[count:])
        for k, value in enumerate(kernel.load(unit, pointer)):
            larger = f.compare("ugt", value, best[k])
            replaces = f.binary("and", larger, f.compare("ord", best[k], best[k]))
            best[k] = f.select(replaces, value, best[k])
            places[k] = f.select(replaces, f.splat(at, value.type.lanes), places[k])
        return [*best, *places]

    maxima = kernel.pixels(unit, [*lowest, *none], find)[count:]
    offset = kernel.n.add(
        kernel.n.mul(unit.pixel.number, kernel.cells.channels.count), unit.channel
    )
    gradients = kernel.load(unit, f.address(kernel.arrays[1], offset, kernel.nbytes))
    start = f.convert("ptrtoint", kernel.arrays[0], I64)

    def write(pointer: Value, number: Index, _: list[Value]) -> list[Value]:
        at = _number(kernel, number, position)
        offset = f.sub(f.convert("ptrtoint", pointer, I64), start)
        target = f.address(kernel.arrays[2], offset)
        for k, (place, gradient) in enumerate(zip(maxima, gradients, strict=True)):
            is_here = f.compare("eq", place, f.splat(at, place.type.lanes))
            value = f.select(is_here, gradient, zero(gradient.type))
            step = k * kernel.cells.channels.lanes * kernel.nbytes
            unit.pieces[k].store(f, value, f.address(target, step))
        return []

    kernel.pixels(unit, [], write)


def _number(kernel: _Kernel, number: Index, type: Type) -> Value:
    scalar = kernel.n.value(number)
    return scalar if type == I64 else kernel.f.convert("trunc", scalar, type)


def _mean_gradient_row(kernel: _Kernel, unit: Value) -> None:
    """Write a row of the gradient: sums over the cells that cover each pixel."""
    f, n, channels = kernel.f, kernel.n, kernel.cells.channels
    height, width, rows, columns = kernel.sizes
    image, y = n.divmod(unit, height)
    top, bottom = _covering(kernel, y, height, rows)

    def pixel(x: Value, _: list[Value]) -> list[Value]:
        left, right = _covering(kernel, x, width, columns)
        target = n.mul(n.add(n.mul(unit, width), x), channels.count)

        def vector(number: Index, piece: Piece) -> list[Value]:
            channel = n.mul(number, channels.lanes)
            ends = ((top, bottom), (left, right))
            total = _sum_of_shares(kernel, n.mul(image, rows, columns), ends, channel, piece)
            address = f.address(kernel.arrays[1], n.add(target, channel), kernel.nbytes)
            piece.store(f, total, address)
            return []

        f.loop_if_any(0, channels.full, 1, lambda number, _: vector(number, channels.piece))
        if channels.rest:
            vector(channels.full, channels.rest)
        return []

    f.loop_if_any(0, width, 1, pixel)


def _covering(kernel: _Kernel, at: Index, size: Index, count: Index) -> tuple[Index, Index]:
    """The first cell that covers a position of an axis, and the one after the last."""
    n = kernel.n
    if count == 1:
        return 0, 1
    after = n.sub(n.add(n.mul(n.add(at, 1), count), size), 1)
    return n.div(n.mul(at, count), size), n.div(after, size)


def _sum_of_shares(
    kernel: _Kernel, image: Index, ends: tuple[tuple[Index, Index], tuple[Index, Index]],
    channel: Index, piece: Piece,
) -> Value:  # fmt: skip
    """The gradients of some cells, each divided by the size of the cell."""
    f, n, count = kernel.f, kernel.n, kernel.cells.channels.count
    height, width, rows, columns = kernel.sizes

    def cell(y: Index, x: Index, total: Value) -> list[Value]:
        (top, bottom) = kernel.edges(y, height, rows)
        (left, right) = kernel.edges(x, width, columns)
        share = _share(kernel, (top, left), (bottom, right))
        number = n.add(n.add(image, n.mul(y, columns)), x)
        offset = n.add(n.mul(number, count), channel)
        value = piece.load(f, f.address(kernel.arrays[0], offset, kernel.nbytes))
        return [f.fma(value, piece.splat(f, share), total)]

    def row(y: Value, held: list[Value]) -> list[Value]:
        return f.loop_if_any(*ends[1], 1, lambda x, inner: cell(y, x, inner[0]), held)

    return f.loop_if_any(*ends[0], 1, row, [zero(piece.type)])[0]
