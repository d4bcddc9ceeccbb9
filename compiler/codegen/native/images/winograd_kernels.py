"""The kernels of Winograd's convolution that transform filters, images and products.

A unit of work is a tile of the block, or a vector of filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.results import NO_OUTPUT, Opened, Pixel, begin
from compiler.codegen.native.images.vectors import Channels, Piece
from compiler.codegen.native.images.winograd_tiles import WinogradTiles
from compiler.codegen.native.images.winograd_transforms import (
    Transform,
    filter_transform,
    image_transform,
    result_transform,
)
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import Function, Index, Value, zero
from compiler.codegen.native.products.contraction import Call
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import named


def filter_kernel(tiles: WinogradTiles, source: str, flipped: bool) -> Call:
    """Return the kernel that transforms filters [3, 3, C, F] and packs them for the product.

    `flipped` reverses rows and columns of the filters.
    """
    label, arrays = f"winograd{tiles.m}_filters_{tiles.name}", [source, "packed"]
    k = begin(label, arrays, [], NO_OUTPUT, tiles.element, tiles.filters)

    def one(vector: Value, piece: Piece) -> list[Value]:
        def channel(c: Value, _: list[Value]) -> list[Value]:
            _transform_filters(k, tiles, flipped, c, vector, piece)
            return []

        k.f.loop(0, tiles.channels, 1, channel)
        return []

    channels = tiles.output_channels
    _units(k, lambda vector: _by_vector(k.f, channels, vector, one))
    nbytes = (9 * tiles.channels * tiles.filters + tiles.packed_size) * tiles.element.nbytes
    kernel = NativeKernel([named(k.f)], channels.vectors, 0, nbytes)
    return Call(kernel, k.arguments)


def _transform_filters(
    k: Opened, tiles: WinogradTiles, flipped: bool, channel: Value, vector: Value, piece: Piece
) -> None:
    """Transform a vector of filters of a channel: rows, then in place columns."""
    f, n, nbytes, transform = k.f, k.n, tiles.element.nbytes, filter_transform(tiles.m)
    at = n.add(n.mul(channel, tiles.filters), n.mul(vector, piece.type.lanes))
    start = f.address(k.arrays[0], at, nbytes)
    target = f.address(k.arrays[1], _packed_place(n, tiles, vector, channel), nbytes)
    step, position = tiles.channels * tiles.filters, tiles.channels * tiles.padded_filters

    def row(r: Value, _: list[Value]) -> list[Value]:
        from_row = n.sub(2, r) if flipped else r
        first = f.address(start, n.mul(from_row, 3 * step), nbytes)
        taps = [piece.load(f, f.address(first, u * step, nbytes)) for u in range(3)]
        to = f.address(target, n.mul(r, tiles.n * position), nbytes)
        for q, value in enumerate(transform(f, taps[::-1] if flipped else taps)):
            f.store(value, f.address(to, q * position, nbytes))
        return []

    def down(q: Value, _: list[Value]) -> list[Value]:
        first = f.address(target, n.mul(q, position), nbytes)
        steps = [r * tiles.n * position for r in range(tiles.n)]
        places = [f.address(first, offset, nbytes) for offset in steps]
        values = transform(f, [f.load(piece.type, place) for place in places[:3]])
        for place, value in zip(places, values, strict=True):
            f.store(value, place)
        return []

    f.loop(0, 3, 1, row)
    f.loop(0, tiles.n, 1, down)


def _packed_place(n: Integers, tiles: WinogradTiles, vector: Value, channel: Value) -> Index:
    """Where a vector of filters of a channel lies in the packed panels of a position."""
    lanes, width = tiles.machine.lanes(tiles.element), tiles.tiling.vectors
    count = tiles.padded_filters // lanes
    panel, place = n.divmod(vector, width)
    size = n.min(width, n.sub(count, n.mul(panel, width)))
    in_panel = n.add(n.mul(channel, size), place)
    return n.mul(n.add(n.mul(panel, width * tiles.channels), in_panel), lanes)


def _by_vector(
    f: Function, channels: Channels, vector: Value,
    emit: Callable[[Value, Piece], list[Value]],
) -> None:  # fmt: skip
    """Emit the code of a full vector, or of the rest of the channels if this is the last vector."""
    if channels.rest is None:
        emit(vector, channels.piece)
        return
    lanes = channels.machine.vector(channels.element)
    rest = replace(_wide(channels), type=lanes, count=channels.count % channels.lanes)
    if not channels.full:
        emit(vector, rest)
        return
    is_full = f.compare("ult", vector, f.index(channels.full))
    f.choose(is_full, lambda: emit(vector, channels.piece), lambda: emit(vector, rest))


def _wide(channels: Channels) -> Piece:
    """A vector register with masks as the machine has them."""
    machine = channels.machine
    return Piece(
        channels.piece.type, 1, machine.has_masks, machine.registers == 16 or machine.has_masks
    )


def _units(k: Opened, emit: Callable[[Value], object]) -> None:
    """Emit the loop over units."""

    def unit(number: Value, _: list[Value]) -> list[Value]:
        emit(number)
        return []

    k.f.loop_if_any(k.first, k.last, 1, unit)


class _Tile:
    """The tile of a unit: its image, row and column of tiles.

    `place` is its number, or that of its row, among all that are counted by `tiles.total`.
    """

    def __init__(self, k: Opened, tiles: WinogradTiles, unit: Value) -> None:
        n, (height, width) = k.n, map(k.n.of, tiles.grid)
        self.number = unit
        block = n.of(tiles.block)
        if tiles.is_open:
            self.place = n.add(n.mul(block, n.of(tiles.number)), unit)
            row, self.column = n.divmod(self.place, width)
        else:
            down, self.column = n.divmod(unit, width)
            row = self.place = n.add(n.mul(block, tiles.rows), down)
        self.image, self.row = n.divmod(row, height)


def _each_tile(k: Opened, tiles: WinogradTiles, emit: Callable[[_Tile], object]) -> None:
    """Emit the loop over tiles; those behind the last image are left out."""

    def unit(number: Value) -> None:
        tile = _Tile(k, tiles, number)
        if tiles.are_even:
            emit(tile)
            return
        place, total = k.n.value(tile.place), k.n.value(k.n.of(tiles.total))
        k.f.when(k.f.compare("ult", place, total), lambda: emit(tile))

    _units(k, unit)


def _of_class(
    k: Opened, tile: _Tile, classes: Sequence[tuple[int, tuple[int, ...]]],
    emit: Callable[[tuple[int, ...]], list[Value]],
) -> list[Value]:  # fmt: skip
    """Emit one body for each class of columns of tiles: (end, what the columns have in common)."""
    (end, common), *rest = classes
    if not rest:
        return emit(common)
    is_here = k.f.compare("ult", k.n.value(tile.column), k.n.value(end))
    return k.f.choose(is_here, lambda: emit(common), lambda: _of_class(k, tile, rest, emit))


def _classes(commons: Sequence[tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """Group equal neighbours; returns the end of each group and what is common to it."""
    classes: list[tuple[int, tuple[int, ...]]] = []
    for place, common in enumerate(commons):
        if classes and classes[-1][1] == common:
            classes.pop()
        classes.append((place + 1, common))
    return classes


def _vectors(k: Opened, channels: Channels, emit: Callable[[Index, Piece], object]) -> None:
    """Emit the loop over vectors of channels: the first channel, and the lanes in use."""

    def full(vector: Value, _: list[Value]) -> list[Value]:
        emit(k.n.mul(vector, channels.lanes), channels.piece)
        return []

    k.f.loop_if_any(0, channels.full, 1, full)
    if channels.rest:
        emit(channels.full * channels.lanes, channels.rest)


def image_kernel(tiles: WinogradTiles) -> Call:
    """Return the kernel that transforms the images' tiles of a block; zeros outside the image."""
    label = f"winograd{tiles.m}_images_{tiles.name}"
    k = begin(label, ["images", "tiles"], tiles.sizes, NO_OUTPUT, tiles.element, tiles.channels)
    _each_tile(k, tiles, lambda tile: _image_tile(k, tiles, tile))
    elements = tiles.tiles_size + tiles.number * (tiles.m**2 * tiles.channels)
    nbytes = elements * tiles.element.nbytes
    kernel = NativeKernel([named(k.f)], tiles.number, tiles.tiles_size * 8, nbytes)
    return Call(kernel, k.arguments)


class _Columns:
    """The columns of a tile on the image: their offsets, clamped, and where they are valid.

    A column that is on the image in every tile has a number as offset and no mask.
    """

    def __init__(self, k: Opened, tiles: WinogradTiles, tile: _Tile) -> None:
        self.k, self.channels = k, tiles.channels
        left, self.width = tiles.padding[2], k.n.of(tiles.size[1])
        self.first = k.n.sub(k.n.mul(tile.column, tiles.m), left)
        self.are_valid = tiles.are_inside(1)
        self.offsets = [self._offset(q) for q in range(tiles.n)]
        self.inside = [self._inside(q) for q in range(tiles.n)]

    def _offset(self, q: int) -> Index:
        n = self.k.n
        if self.are_valid[q]:
            return q * self.channels
        place = n.min(n.max(n.add(self.first, q), 0), n.sub(self.width, 1))
        return n.mul(n.sub(place, self.first), self.channels)

    def _inside(self, q: int) -> Value:
        n = self.k.n
        return self.k.f.compare("ult", n.value(n.add(self.first, q)), n.value(self.width))

    def load(self, piece: Piece, row: Value, nbytes: int) -> list[Value]:
        """Load a row of a tile from the address of its first column; zeros outside the image."""
        f, loaded = self.k.f, list[Value]()
        for q, offset in enumerate(self.offsets):
            value = piece.load(f, f.address(row, offset, nbytes))
            if not self.are_valid[q]:
                inside = f.splat(self.inside[q], piece.type.lanes)
                value = f.select(inside, value, zero(piece.type))
            loaded.append(value)
        return loaded


def _valid_rows(k: Opened, tiles: WinogradTiles, first: Index) -> list[Value | None]:
    """For each row of a tile, whether it is in the image; None if it is in every tile."""
    height, n = k.n.value(k.n.of(tiles.size[0])), k.n
    return [
        None if inside else k.f.compare("ult", n.value(n.add(first, row)), height)
        for row, inside in enumerate(tiles.are_inside(0))
    ]


def _image_tile(k: Opened, tiles: WinogradTiles, tile: _Tile) -> None:
    """Transform a tile: half of each row, then those columns; then the other half."""
    f, n, nbytes, halves = k.f, k.n, tiles.element.nbytes, image_transform(tiles.m)
    height, width = map(n.of, tiles.size)
    channels, size, step = tiles.channels, tiles.n, n.of(tiles.tiles_step)
    first_row = n.sub(n.mul(tile.row, tiles.m), tiles.padding[0])
    columns, rows = _Columns(k, tiles, tile), _valid_rows(k, tiles, first_row)
    pixel = n.add(n.mul(n.add(n.mul(tile.image, height), first_row), width), columns.first)

    def vector(channel: Index, piece: Piece) -> None:
        source = f.address(k.arrays[0], n.add(n.mul(pixel, channels), channel), nbytes)
        at = n.add(n.mul(tile.number, channels), channel)
        target = f.address(k.arrays[1], at, nbytes)
        zeros = [zero(piece.type)] * (size // 2)

        def row(r: int, half: Transform) -> list[Value]:
            start = f.address(source, n.mul(width, r * channels), nbytes)
            return half(f, columns.load(piece, start, nbytes))

        for number, half in enumerate(halves):
            row_values = [
                row(r, half)
                if valid is None
                else f.choose(valid, lambda r=r, half=half: row(r, half), lambda: zeros)
                for r, valid in enumerate(rows)
            ]
            for q in range(size // 2):
                column = [transformed_row[q] for transformed_row in row_values]
                first = number * (size // 2) + q
                for r, value in enumerate(
                    value for transform_half in halves for value in transform_half(f, column)
                ):
                    offset = n.mul(step, r * size + first)
                    piece.store(f, value, f.address(target, offset, nbytes))

    _vectors(k, tiles.input_channels, vector)


def result_kernel(tiles: WinogradTiles, epilogue: Epilogue) -> Call:
    """Return the kernel that transforms the products of a block to results."""
    label = "_".join(filter(None, [f"winograd{tiles.m}_results", tiles.name, epilogue.label]))
    k = begin(label, ["products"], tiles.sizes, epilogue, tiles.element, tiles.filters)
    _each_tile(k, tiles, lambda tile: _of_columns(k, tiles, tile))
    results = tiles.number * (tiles.m**2 * tiles.filters)
    nbytes = (tiles.products_size + results) * tiles.element.nbytes
    kernel = NativeKernel([named(k.f)], tiles.number, tiles.products_size * 4, nbytes)
    return Call(kernel, k.arguments)


def _of_columns(k: Opened, tiles: WinogradTiles, tile: _Tile) -> None:
    """Emit the results of a tile, once for each number of columns that a tile may have."""
    (_, width), (_, count) = tiles.output, tiles.grid

    def of(columns: tuple[int, ...]) -> list[Value]:
        _result_tile(k, tiles, tile, columns[0])
        return []

    if isinstance(width, int) and isinstance(count, int):
        columns = [(min(tiles.m, width - x * tiles.m),) for x in range(count)]
        _of_class(k, tile, _classes(columns), of)
        return
    left = k.n.value(k.n.sub(k.n.of(width), k.n.mul(tile.column, tiles.m)))
    for least in range(tiles.m):
        exact = "uge" if least + 1 == tiles.m else "eq"
        some = k.f.compare(exact, left, k.f.constant(left.type, least + 1))
        k.f.when(some, lambda least=least: of((least + 1,)))


def _result_tile(k: Opened, tiles: WinogradTiles, tile: _Tile, columns: int) -> None:
    """Transform the products of a tile and store so many columns of results."""
    f, n, nbytes, transform = k.f, k.n, tiles.element.nbytes, result_transform(tiles.m)
    (height, width), size, m = map(n.of, tiles.output), tiles.n, tiles.m
    step = n.of(tiles.products_step)
    row, column = n.mul(tile.row, m), n.mul(tile.column, m)
    number = n.add(n.mul(n.add(n.mul(tile.image, height), row), width), column)
    pixel = Pixel(tile.image, row, column, number)

    def vector(channel: Index, piece: Piece) -> None:
        at = n.add(n.mul(tile.number, tiles.padded_filters), channel)
        source = f.address(k.arrays[0], at, nbytes)
        products = [
            f.load(piece.type, f.address(source, n.mul(step, e), nbytes))
            for e in range(size * size)
        ]
        transformed = [transform(f, products[q::size]) for q in range(size)]
        for r in range(m):
            values = transform(f, [transformed_row[r] for transformed_row in transformed])[:columns]
            _store_row(k, tiles, pixel, channel, piece, r, values)

    _vectors(k, tiles.output_channels, vector)


def _store_row(
    k: Opened, tiles: WinogradTiles, first: Pixel, channel: Index, piece: Piece, row: int,
    values: Sequence[Value],
) -> None:  # fmt: skip
    """Send a row of results to the output, unless it lies behind the image."""
    n, (height, width) = k.n, map(k.n.of, tiles.output)

    def store() -> None:
        number = n.add(first.number, n.mul(width, row))
        pixel = replace(first, row=n.add(first.row, row), number=number)
        places = k.results.places(pixel, channel, piece, len(values))
        start = k.results.start(places)
        sums = values if start is None else list(map(k.f.add, values, start))
        k.results.store(sums, places)

    if row == 0 or (isinstance(height, int) and not 0 < height % tiles.m <= row):
        store()
    else:
        inside = k.f.compare("ult", n.value(n.add(first.row, row)), n.value(height))
        k.f.when(inside, store)
