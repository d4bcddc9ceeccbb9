"""The loops of kernels that slide a window over images [N, H, W, C].

A unit of work is a row of windows of one image. Its windows are computed a tile at a time, a vector
of channels each, so that tiles load an element once for all windows that cover it. Rows and columns
of a window outside the image are never read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.positions import (
    UNROLLED_TAPS,
    Tiles,
    Use,
    inner_tiles,
    known_tiles,
    taps_inside,
)
from compiler.codegen.native.images.results import PiecePlace, Pixel, Results
from compiler.codegen.native.images.vectors import Channels, Piece
from compiler.codegen.native.llvm_ir import I64, Function, Index, Value, zero
from compiler.ir.windows import StaticWindow
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class ImageSource:
    """An array [N, H, W, channels] under the windows: its address, and how a vector of it loads.

    `load` reads the vector for output channels of a piece; `per_channel` is how many output
    channels one of its channels has, `each` how many of its channels an output channel has.
    """

    pointer: Value
    channels: int
    nbytes: int
    load: Callable[[Function, Piece, Value], Value]
    per_channel: int = 1
    each: int = 1

    def channel(self, n: Integers, channel: Index) -> Index:
        """The first of its channels for an output channel."""
        return n.mul(n.div(channel, self.per_channel), self.each)


@dataclass(frozen=True)
class WindowTile:
    """A tile of windows in one vector of channels; `rows` is how many of their rows have elements.

    `columns` is the same for each window, ints or, for a tile of one window, an i64. `lanes` are
    those of a full vector, `vector` is the number of this one.
    """

    piece: Piece
    lanes: int
    vector: Index
    places: Sequence[PiecePlace]
    rows: Index
    columns: Sequence[Index]


class WindowBody(ABC):
    """What is computed for a tile; `state` holds its accumulators."""

    def start(self, f: Function, tile: WindowTile, given: list[Value] | None) -> list[Value]:
        """Return the accumulators before the first tap: `given`, what sums begin from, or zero."""
        return given or [zero(tile.piece.type)] * len(tile.places)

    def begin_row(
        self, f: Function, tile: WindowTile, row: Index, taps: Sequence[Index]
    ) -> list[Value]:
        """Return an operand for each tap of a row of the window; it has none by default."""
        return [zero(I64)] * len(taps)

    def see(self, f: Function, state: list[Value], loaded: Sequence[Value]) -> None:
        """Take note of an element that is loaded, in place, once for all windows of the tile."""
        return

    @abstractmethod
    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Add an element to a window's accumulators, in place."""

    def otherwise(self, f: Function, state: list[Value]) -> tuple[Value, WindowBody] | None:
        """Whether the tile must be computed again by a slower body, and which."""
        return None

    def finish(self, f: Function, tile: WindowTile, state: list[Value]) -> list[Value]:
        """Return the results of the windows: the accumulators by default."""
        return state


@dataclass(frozen=True)
class WindowLoops:
    """Emits the loops for windows over `sources`; `sizes` are H, W, OH and OW."""

    f: Function
    n: Integers
    rows: StaticWindow
    columns: StaticWindow
    sizes: tuple[Index, Index, Index, Index]
    channels: Channels
    sources: Sequence[ImageSource]
    results: Results
    body: WindowBody
    width: int

    def row(self, unit: Value) -> None:
        """Compute one row of windows."""
        n, (height, width, out_height, out_width) = self.n, self.sizes
        image, y = n.divmod(unit, out_height)
        first, end, element = taps_inside(self.rows, n, y, height)
        row = n.mul(n.add(n.mul(image, height), element), width)
        pixel = Pixel(image, y, 0, n.mul(unit, out_width))
        _Row(self, first, end, self._pointers(row), pixel).emit()

    def _pointers(self, row: Index) -> list[Value]:
        return [
            self.f.address(source.pointer, self.n.mul(row, source.channels), source.nbytes)
            for source in self.sources
        ]


@dataclass(frozen=True)
class _Row:
    """A row of windows: its taps' rows, their first elements, and the first pixel of the output."""

    loops: WindowLoops
    first: Index
    end: Index
    pointers: Sequence[Value]
    pixel: Pixel

    def emit(self) -> None:
        """Emit all columns."""
        loops, columns = self.loops, self.loops.columns
        static_tiles = known_tiles(columns, loops.width)
        if static_tiles is not None:
            for tiles in static_tiles:
                self.tiles(tiles)
            return
        _, width, _, count = loops.sizes
        if columns.base_dilation > 1 or columns.kernel * loops.width > UNROLLED_TAPS.value:
            loops.f.loop_if_any(0, count, 1, self.single)
            return
        inner, end = inner_tiles(columns, loops.n, width, count, loops.width)
        loops.f.loop_if_any(0, inner.first, 1, self.single)
        self.tiles(inner)
        loops.f.loop_if_any(end, count, 1, self.single)

    def tiles(self, tiles: Tiles) -> None:
        """Emit adjacent tiles of equal code."""
        n = self.loops.n

        def one(number: Index) -> None:
            first = n.add(tiles.first, n.mul(number, tiles.width))
            base = n.add(tiles.base, n.mul(number, tiles.step))
            counts = [
                sum(p == window for _, pairs in tiles.uses for p, _ in pairs)
                for window in range(tiles.width)
            ]
            taps = range(self.loops.columns.kernel)
            self.vectors(first, base, _Columns(counts, list(taps), tiles.uses))

        def body(number: Value, _: list[Value]) -> list[Value]:
            one(number)
            return []

        if tiles.number == 1:
            one(0)
        else:
            self.loops.f.loop_if_any(0, tiles.number, 1, body)

    def single(self, x: Value, _: list[Value]) -> list[Value]:
        """Emit one window at a column known at run time."""
        loops = self.loops
        first, end, element = taps_inside(loops.columns, loops.n, x, loops.sizes[1])
        period = loops.columns.period
        some = loops.n.max(loops.n.sub(loops.n.add(end, period - 1), first), 0)
        self.vectors(x, element, _OpenColumns([loops.n.div(some, period)], first, end))
        return []

    def vectors(self, x: Index, base: Index, columns: _Columns | _OpenColumns) -> None:
        """Emit the loop over the channels of a tile."""
        loops, channels = self.loops, self.loops.channels
        number = loops.n.add(self.pixel.number, x)
        pixel = replace(self.pixel, column=x, number=number)

        def full(vector: Value, _: list[Value]) -> list[Value]:
            self.tile(pixel, base, columns, channels.piece, vector)
            return []

        loops.f.loop_if_any(0, channels.full, 1, full)
        if channels.rest:
            self.tile(pixel, base, columns, channels.rest, channels.full)

    def tile(
        self, pixel: Pixel, base: Index, columns: _Columns | _OpenColumns, piece: Piece,
        vector: Index,
    ) -> None:  # fmt: skip
        """Emit one vector of a tile."""
        loops, n, f = self.loops, self.loops.n, self.loops.f
        channel = n.value(n.mul(vector, loops.channels.lanes))
        places = loops.results.places(pixel, channel, piece, len(columns.counts))
        period = loops.rows.period
        rows = n.div(n.max(n.sub(n.add(self.end, period - 1), self.first), 0), period)
        tile = WindowTile(piece, loops.channels.lanes, vector, places, rows, columns.counts)
        pointers = [
            f.address(p, n.add(n.mul(base, s.channels), s.channel(n, channel)), s.nbytes)
            for p, s in zip(self.pointers, loops.sources, strict=True)
        ]
        state, body = self.taps(tile, columns, pointers), loops.body
        slower = body.otherwise(f, state)
        if slower is None:
            loops.results.store(body.finish(f, tile, state), places)
            return
        slow = replace(self, loops=replace(loops, body=slower[1]))

        def again() -> list[Value]:
            return slower[1].finish(f, tile, slow.taps(tile, columns, pointers))

        values = f.choose(slower[0], again, lambda: body.finish(f, tile, state))
        loops.results.store(values, places)

    def taps(
        self, tile: WindowTile, columns: _Columns | _OpenColumns, pointers: list[Value]
    ) -> list[Value]:
        """Emit the loop over the rows of a tile's windows; returns the accumulators."""
        loops, count = self.loops, len(pointers)
        state = loops.body.start(loops.f, tile, loops.results.start(tile.places))
        steps = [
            loops.n.mul(loops.rows.advance, loops.sizes[1], source.channels)
            for source in loops.sources
        ]

        def body(row: Value, held: list[Value]) -> list[Value]:
            state = columns.emit(self.loops, tile, row, held[:count], held[count:])
            following = [
                loops.f.address(pointer, step, source.nbytes)
                for pointer, step, source in zip(held[:count], steps, loops.sources, strict=True)
            ]
            return [*following, *state]

        carried = [*pointers, *state]
        return loops.f.loop_if_any(self.first, self.end, loops.rows.period, body, carried)[count:]


@dataclass(frozen=True)
class _Columns:
    """The columns of a tile at positions known relative to its base."""

    counts: Sequence[Index]
    taps: Sequence[Index]
    uses: tuple[Use, ...]

    def emit(
        self, loops: WindowLoops, tile: WindowTile, row: Value, pointers: Sequence[Value],
        state: list[Value],
    ) -> list[Value]:  # fmt: skip
        """Emit all taps of one row; returns the accumulators."""
        f, state = loops.f, list(state)
        operands = loops.body.begin_row(f, tile, row, self.taps)
        for place, pairs in self.uses:
            loaded = [
                source.load(
                    f, tile.piece, f.address(pointer, place * source.channels, source.nbytes)
                )
                for pointer, source in zip(pointers, loops.sources, strict=True)
            ]
            loops.body.see(f, state, loaded)
            for window, tap in pairs:
                loops.body.tap(f, tile, state, window, loaded, operands[tap])
        return state


@dataclass(frozen=True)
class _OpenColumns:
    """The columns of one window, from tap `first` to `end`, known at run time."""

    counts: Sequence[Index]
    first: Index
    end: Index

    def emit(
        self, loops: WindowLoops, tile: WindowTile, row: Value, pointers: Sequence[Value],
        state: list[Value],
    ) -> list[Value]:  # fmt: skip
        """Emit the loop over the taps of one row; returns the accumulators."""
        f, axis, count = loops.f, loops.columns, len(pointers)

        def body(tap: Value, held: list[Value]) -> list[Value]:
            state = held[count:]
            [operand] = loops.body.begin_row(f, tile, row, [tap])
            loaded = [
                source.load(f, tile.piece, pointer)
                for pointer, source in zip(held[:count], loops.sources, strict=True)
            ]
            loops.body.see(f, state, loaded)
            loops.body.tap(f, tile, state, 0, loaded, operand)
            following = [
                f.address(pointer, axis.advance * source.channels, source.nbytes)
                for pointer, source in zip(held[:count], loops.sources, strict=True)
            ]
            return [*following, *state]

        carried = [*pointers, *state]
        return f.loop_if_any(self.first, self.end, axis.period, body, carried)[count:]
