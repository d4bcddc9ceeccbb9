"""Depthwise convolution of images [N, H, W, C]: each channel has filters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.results import NO_EPILOGUE, Opened
from compiler.codegen.native.images.sliding import ImageWindows, sliding_kernel
from compiler.codegen.native.images.vectors import Piece
from compiler.codegen.native.images.window_loops import ImageSource, WindowBody, WindowTile
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Value, zero
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import named
from compiler.support.dataclass import dataclass


def depthwise(
    windows: ImageWindows, multiplier: int = 1, epilogue: Epilogue = NO_EPILOGUE,
    constant: bool = True, flipped: bool = False, filters_last: bool = False,
) -> Steps:  # fmt: skip
    """Kernels of a depthwise convolution with `multiplier` filters per channel.

    Operands: "images" [N, H, W, C / multiplier], "filters" [C, 1, kh, kw], where C is the number of
    `windows.channels`, "out" [N, OH, OW, C], those of the epilogue; scratch: "packed". `constant`
    says that filters never change. `flipped` reverses their taps. Filters are [kh, kw, 1, C] if
    `filters_last`.
    """
    if windows.channels.lanes % multiplier:
        windows = replace(windows, channels=replace(windows.channels, limit=1))
    element, channels = windows.channels.element, windows.channels
    pack = pack_filters(windows, flipped, filters_last)

    def make(k: Opened) -> tuple[_Products, Sequence[ImageSource]]:
        images, filters = k.arrays
        source = ImageSource(
            images, channels.count // multiplier, element.nbytes,
            lambda f, piece, pointer: load_repeated(f, piece, pointer, multiplier), multiplier,
        )  # fmt: skip
        return _Products(k.n, filters, (windows.rows.kernel, windows.columns.kernel)), [source]

    name = "depthwise" + f"_m{multiplier}" * (multiplier > 1)
    arrays = ["images", "packed"]
    call = sliding_kernel(name, windows, arrays, make, tile_width(windows), epilogue, flops=2)
    taps = windows.rows.kernel * windows.columns.kernel
    scratch = {"packed": channels.vectors * channels.lanes * taps}
    return Steps((call,), (pack,), scratch) if constant else Steps((pack, call), (), scratch)


def tile_width(windows: ImageWindows) -> int:
    """How many windows of a row to compute at once: as many as leave registers for a filter row."""
    registers = windows.channels.machine.registers
    return max(1, min(8, registers - 3 - windows.columns.kernel))


@dataclass(frozen=True)
class _Products(WindowBody):
    """Sums of products; filters are [vector][tap][lane]."""

    n: Integers
    filters: Value
    taps: tuple[int, int]

    def begin_row(
        self, f: Function, tile: WindowTile, row: Index, taps: Sequence[Index]
    ) -> list[Value]:
        """A row of the filters."""
        n, (height, width) = self.n, self.taps
        type = tile.piece.type
        start = n.mul(n.add(n.mul(tile.vector, height), row), width)
        pointer = f.address(self.filters, n.mul(start, tile.lanes), type.nbytes)
        return [f.load(type, f.address(pointer, n.mul(u, tile.lanes), type.nbytes)) for u in taps]

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Add a product."""
        state[window] = f.fma(loaded[0], operand, state[window])


def load_repeated(f: Function, piece: Piece, pointer: Value, multiplier: int) -> Value:
    """Load channels, each repeated for its filters."""
    if multiplier == 1 or piece.type.lanes == 1:
        return piece.load(f, pointer)
    lanes = piece.type.lanes // multiplier
    type = piece.type.vector(lanes)
    narrow = replace(piece, type=type, count=piece.count // multiplier).load(f, pointer)
    return f.shuffle(narrow, narrow, [lane // multiplier for lane in range(piece.type.lanes)])


def pack_filters(windows: ImageWindows, flipped: bool = False, filters_last: bool = False) -> Call:
    """Return the kernel that packs "filters" as "packed" [vector][tap][lane].

    Filters are [C, 1, kh, kw], or [kh, kw, 1, C] if `filters_last`. Lanes behind the last channel
    are zero. `flipped` reverses the taps, for the gradient. The number of channels is an argument:
    convolutions of as many taps share the kernel.
    """
    channels = windows.channels
    taps, lanes = windows.rows.kernel * windows.columns.kernel, channels.lanes
    name = f"pack_depthwise_{taps}" + "_flipped" * flipped
    f, (source, target, count), first, last = entry(name, [POINTER, POINTER, I64])
    strides: tuple[Index, Index] = (1, count) if filters_last else (taps, 1)
    n, element = Integers(f), channels.element.scalar

    def lane(number: Value, _: list[Value]) -> list[Value]:
        f.loop(0, taps, 1, lambda tap, _: move(number, tap))
        return []

    def move(number: Value, tap: Value) -> list[Value]:
        vector, place = n.divmod(number, lanes)
        from_tap = n.sub(taps - 1, tap) if flipped else tap
        place_in = n.add(n.mul(number, strides[0]), n.mul(from_tap, strides[1]))
        address = f.address(source, place_in, element.nbytes)
        is_channel = f.compare("ult", number, count)
        [value] = f.choose(is_channel, lambda: [f.load(element, address)], lambda: [zero(element)])
        index = n.add(n.mul(n.add(n.mul(vector, taps), tap), lanes), place)
        f.store(value, f.address(target, index, element.nbytes))
        return []

    f.loop_if_any(first, last, 1, lane)
    size = channels.vectors * lanes
    kernel = NativeKernel([named(f)], size, 0, 2 * size * taps * element.nbytes)
    return Call(kernel, ("filters", "packed", channels.count))
