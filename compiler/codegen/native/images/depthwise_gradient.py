"""Gradients of depthwise convolution by its images and by its filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from compiler.codegen.native.images.depthwise import (
    depthwise,
    load_repeated,
    pack_filters,
    tile_width,
)
from compiler.codegen.native.images.positions import Tiles, inner_tiles, known_tiles
from compiler.codegen.native.images.results import NO_EPILOGUE, NO_OUTPUT, Opened, begin
from compiler.codegen.native.images.sliding import (
    TILE_WINDOWS,
    ImageWindows,
    renamed,
    sliding_kernel,
)
from compiler.codegen.native.images.vectors import Piece
from compiler.codegen.native.images.window_loops import ImageSource, WindowBody, WindowTile
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import POINTER, Function, Index, Value, zero
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import named
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

_AddRow: TypeAlias = Callable[[Value, list[Value]], list[Value]]
"""Adds a row of taps, from the address of its elements and the sums of the row."""


def depthwise_image_gradient(
    windows: ImageWindows, multiplier: int = 1, epilogue: Epilogue = NO_EPILOGUE
) -> Steps:
    """Kernels of the gradient by the images of `depthwise` with these windows.

    Operands: "d_out" [N, OH, OW, C], "filters" [C, 1, kh, kw], "d_images" [N, H, W, C /
    multiplier], those of the epilogue, which calls d_images "out"; scratch: "packed".
    """
    if multiplier == 1:
        steps = depthwise(windows.transposed, 1, epilogue, constant=False, flipped=True)
    else:
        steps = _summed(windows.transposed, multiplier, epilogue)
    names = {"images": "d_out", "out": "d_images"}
    return replace(steps, calls=tuple(renamed(call, names) for call in steps.calls))


def _summed(windows: ImageWindows, multiplier: int, epilogue: Epilogue) -> Steps:
    """A convolution that sums over the filters of each channel; lanes are filters."""
    count, element = windows.channels.count, windows.channels.element
    grouped = replace(windows, channels=replace(windows.channels, limit=multiplier))
    single = replace(windows.channels, count=count // multiplier, limit=1)
    pack = pack_filters(grouped, flipped=True)

    def make(k: Opened) -> tuple[_Grouped, Sequence[ImageSource]]:
        def load(f: Function, piece: Piece, pointer: Value) -> Value:
            return f.load(piece.type.vector(multiplier), pointer)

        source = ImageSource(k.arrays[0], count, element.nbytes, load, each=multiplier)
        taps = (windows.rows.kernel, windows.columns.kernel)
        return _Grouped(k, taps, multiplier), [source]

    per_channel = replace(windows, channels=single)
    name, width = f"depthwise_sums_{multiplier}", tile_width(windows)
    call = sliding_kernel(name, per_channel, ["images", "packed"], make, width, epilogue, flops=2)
    taps = windows.rows.kernel * windows.columns.kernel
    return Steps((pack, call), (), {"packed": count * taps})


@dataclass(frozen=True)
class _Grouped(WindowBody):
    """Sums of products over the filters of a channel, which are the lanes."""

    k: Opened
    taps: tuple[int, int]
    multiplier: int

    def start(self, f: Function, tile: WindowTile, given: list[Value] | None) -> list[Value]:
        """Zero, and what the epilogue says in the first lane."""
        none = zero(tile.piece.type.vector(self.multiplier))
        if given is None:
            return [none] * len(tile.places)
        return [f.insert(none, f.extract(vector, 0), 0) for vector in given]

    def begin_row(
        self, f: Function, tile: WindowTile, row: Index, taps: Sequence[Index]
    ) -> list[Value]:
        """A row of the filters."""
        n, (height, width) = self.k.n, self.taps
        type = tile.piece.type.vector(self.multiplier)
        first = n.mul(n.add(n.mul(tile.vector, height), row), width)
        places = [n.mul(n.add(first, u), self.multiplier) for u in taps]
        return [f.load(type, f.address(self.k.arrays[1], place, type.nbytes)) for place in places]

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Add the products."""
        state[window] = f.fma(loaded[0], operand, state[window])

    def finish(self, f: Function, tile: WindowTile, state: list[Value]) -> list[Value]:
        """The sums over lanes."""
        return [f.insert(zero(tile.piece.type), f.reduce("fadd", total), 0) for total in state]


def depthwise_filter_gradient(windows: ImageWindows, multiplier: int = 1) -> Steps:
    """Kernels of the gradient by the filters of `depthwise` with these windows.

    Operands: "images" [N, H, W, C / multiplier], "d_out" [N, OH, OW, C], "d_filters"
    [C, 1, kh, kw]; scratch: "partials".
    """
    if windows.channels.lanes % multiplier:
        windows = replace(windows, channels=replace(windows.channels, limit=1))
    plan = _Plan.make(windows, multiplier)
    sums = _sums_kernel(plan)
    channels = windows.channels
    size = plan.parts * channels.vectors * channels.lanes * plan.taps
    return Steps((sums, _collect_kernel(plan)), (), {"partials": size})


UNITS = threshold(
    "depthwise_units", 16, "units",
    "rows of windows are divided into parts until a depthwise filter gradient has so many", small=3,
)  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """How the gradient by filters is divided: rows of windows in parts, rows of taps in groups."""

    windows: ImageWindows
    multiplier: int
    parts: int
    rows: int
    width: int

    @staticmethod
    def make(windows: ImageWindows, multiplier: int) -> _Plan:
        """As many rows of taps as leave registers for a tile's gradients."""
        registers = windows.channels.machine.registers
        width = min(8 if registers > 16 else 4, TILE_WINDOWS.value)
        room = (registers - width - 2) // windows.columns.kernel
        parts = -(-UNITS.value // windows.channels.vectors)
        if isinstance(windows.rows.count, int):
            parts = min(parts, windows.rows.count)
        return _Plan(windows, multiplier, parts, max(1, min(room, windows.rows.kernel)), width)

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return self.windows.rows.kernel * self.windows.columns.kernel

    @property
    def groups(self) -> int:
        """Groups of rows of taps."""
        return -(-self.windows.rows.kernel // self.rows)

    @property
    def name(self) -> str:
        """The sizes as a part of a kernel's name."""
        return f"depthwise_filter_gradient_m{self.multiplier}_{self.windows.name}"


def _sums_kernel(plan: _Plan) -> Call:
    """Return the kernel that writes the partial sums [part][vector][tap][lane]."""
    windows, channels = plan.windows, plan.windows.channels
    sizes = [windows.batch, *windows.sizes]
    k = begin(plan.name, ["images", "d_out", "partials"], sizes, NO_OUTPUT, channels.element, 0)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        rest, vector = k.n.divmod(number, channels.vectors)
        part, group = k.n.divmod(rest, plan.groups)

        def of(piece: Piece) -> list[Value]:
            _Sums(k, plan, piece, vector, k.n.mul(group, plan.rows)).emit(part)
            return []

        if channels.rest is None:
            return of(channels.piece)
        rest_piece = channels.rest
        if not channels.full:
            return of(rest_piece)
        is_full = k.f.compare("ult", k.n.value(vector), k.n.value(channels.full))
        return k.f.choose(is_full, lambda: of(channels.piece), lambda: of(rest_piece))

    k.f.loop_if_any(k.first, k.last, 1, unit)
    nbytes = (windows.inputs + windows.outputs) * channels.element.nbytes
    units = plan.parts * plan.groups * channels.vectors
    kernel = NativeKernel([named(k.f)], units, windows.outputs * (2 * plan.taps), nbytes)
    return Call(kernel, k.arguments)


@dataclass(frozen=True)
class _Sums:
    """The sums of a unit: a vector of channels, and rows of taps from `first_row` on."""

    k: Opened
    plan: _Plan
    piece: Piece
    vector: Index
    first_row: Index

    @property
    def channel(self) -> Index:
        """The first channel."""
        return self.k.n.mul(self.vector, self.plan.windows.channels.lanes)

    def emit(self, part: Index) -> None:
        """Sum the rows of windows of a part over all images, and store the sums."""
        k, n, windows = self.k, self.k.n, self.plan.windows
        batch, _, _, count, _ = (n.of(size) for size in (windows.batch, *windows.sizes))
        length = n.ceil_div(count, self.plan.parts)
        first = n.mul(part, length)
        end = n.min(n.add(first, length), count)
        zeros = [zero(self.piece.type)] * (self.plan.rows * windows.columns.kernel)

        def image(number: Value, held: list[Value]) -> list[Value]:
            return k.f.loop_if_any(first, end, 1, lambda y, sums: self.row(number, y, sums), held)

        self.store(part, k.f.loop_if_any(0, batch, 1, image, zeros))

    def store(self, part: Index, sums: Sequence[Value]) -> None:
        """Store the partial sums; rows behind the last one are not stored."""
        k, n, channels, width = self.k, self.k.n, self.plan.windows.channels, self._width
        first = n.mul(n.add(n.mul(part, channels.vectors), self.vector), self.plan.taps)
        for i in range(self.plan.rows):
            row = n.add(self.first_row, i)

            def of_row(row: Index = row, i: int = i) -> None:
                start = n.mul(n.add(first, n.mul(row, width)), channels.lanes)
                target = k.f.address(k.arrays[2], start, channels.element.nbytes)
                for u in range(width):
                    step = u * channels.lanes * channels.element.nbytes
                    self.piece.store(k.f, sums[i * width + u], k.f.address(target, step))

            height = self.plan.windows.rows.kernel
            if height % self.plan.rows == 0:
                of_row()
            else:
                k.f.when(k.f.compare("ult", n.value(row), n.value(height)), of_row)

    @property
    def _width(self) -> int:
        return self.plan.windows.columns.kernel

    def row(self, image: Value, y: Value, sums: list[Value]) -> list[Value]:
        """Add a row of windows of an image."""
        k, n, windows = self.k, self.k.n, self.plan.windows
        _, width, _, count = (n.of(size) for size in windows.sizes)
        columns = windows.columns
        static_tiles = known_tiles(columns, self.plan.width)
        if static_tiles is not None:
            for tiles in static_tiles:
                sums = self.tiles(image, y, tiles, sums)
            return sums
        inner, end = inner_tiles(columns, n, width, count, self.plan.width)

        def single(x: Value, held: list[Value]) -> list[Value]:
            return self.single(image, y, x, held)

        sums = k.f.loop_if_any(0, inner.first, 1, single, sums)
        sums = self.tiles(image, y, inner, sums)
        return k.f.loop_if_any(end, count, 1, single, sums)

    def tiles(self, image: Value, y: Value, tiles: Tiles, sums: list[Value]) -> list[Value]:
        """Add adjacent tiles of equal code."""
        n = self.k.n

        def one(number: Index, held: list[Value]) -> list[Value]:
            first = n.add(tiles.first, n.mul(number, tiles.width))
            base = n.add(tiles.base, n.mul(number, tiles.step))
            gradients = self.gradients(image, y, first, tiles.width)

            def row(pointer: Value, row_sums: list[Value]) -> list[Value]:
                start = self.moved(pointer, base)
                for place, pairs in tiles.uses:
                    loaded = self.load(self.moved(start, place))
                    for p, u in pairs:
                        row_sums[u] = self.k.f.fma(loaded, gradients[p], row_sums[u])
                return row_sums

            return self.rows(image, y, row, held)

        if tiles.number == 1:
            return one(0, sums)
        return self.k.f.loop_if_any(0, tiles.number, 1, one, sums)

    def single(self, image: Value, y: Value, x: Value, sums: list[Value]) -> list[Value]:
        """Add one window at a column known at run time."""
        f, n, axis = self.k.f, self.k.n, self.plan.windows.columns
        size = n.value(n.of(axis.size))
        [gradient] = self.gradients(image, y, x, 1)

        def row(pointer: Value, row_sums: list[Value]) -> list[Value]:
            for u in range(axis.kernel):
                place = n.value(n.add(n.mul(x, axis.stride), u * axis.dilation - axis.before))

                def add(place: Value = place, u: int = u) -> list[Value]:
                    return [f.fma(self.load(self.moved(pointer, place)), gradient, row_sums[u])]

                inside = f.compare("ult", place, size)
                [row_sums[u]] = f.choose(inside, add, lambda u=u: [row_sums[u]])
            return row_sums

        return self.rows(image, y, row, sums)

    def rows(self, image: Value, y: Value, add: _AddRow, sums: list[Value]) -> list[Value]:
        """Add each row of taps that lies in the image."""
        k, n, axis = self.k, self.k.n, self.plan.windows.rows
        height, width = (n.of(size) for size in self.plan.windows.sizes[:2])
        result: list[Value] = []
        for i in range(self.plan.rows):
            accumulators = sums[i * self._width : (i + 1) * self._width]
            tap = n.add(self.first_row, i)
            place = n.sub(n.add(n.mul(y, axis.stride), n.mul(tap, axis.dilation)), axis.before)
            inside = k.f.compare("ult", n.value(place), n.value(height))
            if axis.kernel % self.plan.rows:
                is_tap = k.f.compare("ult", n.value(tap), n.value(axis.kernel))
                inside = k.f.binary("and", inside, is_tap)

            def added(place: Index = place, held: list[Value] = accumulators) -> list[Value]:
                pixel = n.mul(n.add(n.mul(image, height), place), width)
                pointer = self.moved(self.k.arrays[0], pixel)
                channel = n.div(self.channel, self.plan.multiplier)
                nbytes = self.plan.windows.channels.element.nbytes
                return add(k.f.address(pointer, channel, nbytes), list(held))

            result += k.f.choose(inside, added, lambda held=accumulators: held)
        return result

    def moved(self, pointer: Value, pixels: Index) -> Value:
        """An address of the images some pixels on."""
        channels = self.plan.windows.channels
        count = channels.count // self.plan.multiplier
        return self.k.f.address(pointer, self.k.n.mul(pixels, count), channels.element.nbytes)

    def load(self, pointer: Value) -> Value:
        """Channels of a pixel, each repeated for its filters."""
        return load_repeated(self.k.f, self.piece, pointer, self.plan.multiplier)

    def gradients(self, image: Value, y: Value, x: Index, width: int) -> list[Value]:
        """The gradients of neighbouring windows."""
        k, n, windows = self.k, self.k.n, self.plan.windows
        _, _, height, count = (n.of(size) for size in windows.sizes)
        pixel = n.add(n.mul(n.add(n.mul(image, height), y), count), x)
        start = n.add(n.mul(pixel, windows.channels.count), self.channel)
        nbytes = windows.channels.element.nbytes
        pointer = k.f.address(k.arrays[1], start, nbytes)
        step = windows.channels.count
        return [self.piece.load(k.f, k.f.address(pointer, p * step, nbytes)) for p in range(width)]


def _collect_kernel(plan: _Plan) -> Call:
    """Return the kernel that adds the partial sums of all parts and stores them by filter."""
    channels, taps = plan.windows.channels, plan.taps
    element, lanes = channels.element.scalar, channels.lanes
    f, (partials, target), first, last = entry(f"{plan.name}_sums", [POINTER, POINTER])

    def unit(number: Value, _: list[Value]) -> list[Value]:
        channel = f.binary("udiv", number, f.index(taps))
        tap = f.binary("urem", number, f.index(taps))
        vector = f.binary("udiv", channel, f.index(lanes))
        place = f.add(f.mul(vector, f.index(taps)), tap)
        lane = f.binary("urem", channel, f.index(lanes))
        at = f.address(partials, f.add(f.mul(place, f.index(lanes)), lane), element.nbytes)
        step = channels.vectors * taps * lanes
        total = f.load(element, at)
        for part in range(1, plan.parts):
            total = f.add(total, f.load(element, f.address(at, part * step, element.nbytes)))
        f.store(total, f.address(target, number, element.nbytes))
        return []

    f.loop_if_any(first, last, 1, unit)
    size = channels.count * taps
    kernel = NativeKernel([named(f)], size, size * plan.parts, size * 2 * element.nbytes)
    return Call(kernel, ("partials", "d_filters"))
