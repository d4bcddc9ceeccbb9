"""Maximum and mean under a sliding window, and their gradients.

The gradient of a maximum goes to its first position in row-major order; none where the maximum is
NaN. Windows of elements less than the lowest finite number, -inf, have that number as maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.native.element_types import TYPES
from compiler.codegen.native.functions import cast
from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.results import NO_EPILOGUE, Opened
from compiler.codegen.native.images.sliding import ImageWindows, renamed, sliding_kernel
from compiler.codegen.native.images.vectors import Piece
from compiler.codegen.native.images.window_loops import ImageSource, WindowBody, WindowTile
from compiler.codegen.native.llvm_ir import F64, I32, I64, Function, Index, Type, Value, zero
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.ir.types import HALVES, DType
from compiler.support.dataclass import dataclass

POSITIONS = "positions"
"""The scratch array of each window's first maximum, as the number of its tap; -1 for none."""


def pool(
    windows: ImageWindows, largest: bool, divisor: int = 0, epilogue: Epilogue = NO_EPILOGUE,
    source: DType | None = None,
) -> Steps:  # fmt: skip
    """The kernel of a pooling; operands: "images" [N, H, W, C], "out" [N, OH, OW, C].

    `source` is the images' type: that of the windows, or a half that is widened to it.

    A mean divides by `divisor`, or for 0 by the number of elements under the window. The epilogue
    has no `start`.
    """
    assert not epilogue.start
    body: WindowBody = _Mean(divisor, _Counts.of(windows))
    if largest:
        has_maximum = not windows.channels.machine.triple.startswith("x86")
        body = _Largest() if has_maximum else _LargestNumber()
    element = windows.channels.element

    def make(k: Opened) -> tuple[WindowBody, Sequence[ImageSource]]:
        if source in HALVES:
            return body, [_half_source(windows, k.arrays[0], source)]
        return body, [_source(windows, k.arrays[0], element)]

    name = "pool_max" if largest else f"pool_mean{divisor or ''}"
    width = 8 if windows.channels.machine.registers > 16 else 6
    return Steps((sliding_kernel(name, windows, ["images"], make, width, epilogue),))


def pool_gradient(
    windows: ImageWindows, largest: bool, divisor: int = 0, epilogue: Epilogue = NO_EPILOGUE
) -> Steps:
    """The kernels of the gradient of `pool`.

    Operands: for the maximum "images" and "out", for both "d_out" and, written whole, "d_images".
    Scratch: "positions" of the maximum, i32 (i64 for float64), "shares" of some means.
    The epilogue calls d_images "out" and has no `start`.
    """
    assert not epilogue.start
    if largest:
        return _largest_gradient(windows, epilogue)
    return _mean_gradient(windows, divisor, epilogue)


def _source(windows: ImageWindows, pointer: Value, element: Type) -> ImageSource:
    """An array with the channels of the windows."""

    def load(f: Function, piece: Piece, address: Value) -> Value:
        return replace(piece, type=piece.type.of(element)).load(f, address)

    return ImageSource(pointer, windows.channels.count, element.nbytes, load)


def _half_source(windows: ImageWindows, pointer: Value, dtype: DType) -> ImageSource:
    """An array in half precision, widened to float32."""
    half = TYPES[dtype]

    def load(f: Function, piece: Piece, address: Value) -> Value:
        stored = replace(piece, type=piece.type.of(half)).load(f, address)
        return cast(f, stored, dtype, DType.FP32)

    return ImageSource(pointer, windows.channels.count, half.nbytes, load)


def maximum(f: Function, a: Value, b: Value) -> Value:
    """The larger of two numbers, NaN if one is; zeros of either sign are equal."""
    return f.call(f"llvm.maximum.{a.type.suffix}", a.type, a, b, flags="nsz")


def lowest(type: Type) -> float:
    """The lowest finite number of a type."""
    if type.scalar == F64:
        return -1.7976931348623157e308
    return -3.4028234663852886e38


class _Largest(WindowBody):
    """The maximum of a window."""

    def start(self, f: Function, tile: WindowTile, given: list[Value] | None) -> list[Value]:
        """The lowest finite number."""
        return [f.constant(tile.piece.type, lowest(tile.piece.type))] * len(tile.places)

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Keep the larger."""
        state[window] = maximum(f, state[window], loaded[0])


class _LargestNumber(_Largest):
    """The maximum of a window without NaN: one instruction a tap.

    A sum of the tile's elements tells whether there may be one; then `_Largest` computes the tile.
    It is kept in parts, so that additions do not wait for each other.
    """

    parts = 4

    def start(self, f: Function, tile: WindowTile, given: list[Value] | None) -> list[Value]:
        """The lowest finite numbers, and the parts of the sum."""
        return [*super().start(f, tile, given), *[zero(tile.piece.type)] * self.parts]

    def see(self, f: Function, state: list[Value], loaded: Sequence[Value]) -> None:
        """Add the element to the part that has waited longest."""
        state.append(f.add(state.pop(-self.parts), loaded[0]))

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Keep the larger, of numbers."""
        is_larger = f.compare("ogt", loaded[0], state[window])
        state[window] = f.select(is_larger, loaded[0], state[window])

    def otherwise(self, f: Function, state: list[Value]) -> tuple[Value, WindowBody] | None:
        """Whether the sum is NaN."""
        total, *others = state[-self.parts :]
        for term in others:
            total = f.add(total, term)
        return f.reduce("or", f.compare("uno", total, total)), _Largest()

    def finish(self, f: Function, tile: WindowTile, state: list[Value]) -> list[Value]:
        """The maxima."""
        return state[: -self.parts]


@dataclass(frozen=True)
class _Counts:
    """How many elements a window covers; 0 if that differs between windows."""

    fixed: int

    @staticmethod
    def of(windows: ImageWindows) -> _Counts:
        """Look at both ends of both axes."""
        axes = (windows.rows, windows.columns)
        is_static = all(
            isinstance(axis.size, int)
            and isinstance(axis.count, int)
            and axis.before <= 0
            and (axis.count - 1) * axis.stride - axis.before + axis.kernel <= axis.size
            for axis in axes
        )
        return _Counts(axes[0].kernel * axes[1].kernel if is_static else 0)

    def shares(self, f: Function, tile: WindowTile, divisor: int) -> list[Value]:
        """1 / the number of elements, at least one, for each window."""
        type, splats = tile.piece.type, dict[str, Value]()
        if divisor or self.fixed:
            return [f.constant(type, 1 / (divisor or self.fixed))] * len(tile.places)
        n = Integers(f)
        for columns in tile.columns:
            if str(columns) not in splats:
                covered = n.max(n.mul(tile.rows, columns), 1)
                number = f.convert("sitofp", n.value(covered), type.scalar)
                share = f.div(f.constant(type.scalar, 1.0), number)
                splats[str(columns)] = tile.piece.splat(f, share)
        return [splats[str(columns)] for columns in tile.columns]


@dataclass(frozen=True)
class _Mean(WindowBody):
    """The sum of a window times 1 / its size."""

    divisor: int
    counts: _Counts

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Add the element."""
        state[window] = f.add(state[window], loaded[0])

    def finish(self, f: Function, tile: WindowTile, state: list[Value]) -> list[Value]:
        """The means."""
        shares = self.counts.shares(f, tile, self.divisor)
        return [f.mul(total, share) for total, share in zip(state, shares, strict=True)]


def _largest_gradient(windows: ImageWindows, epilogue: Epilogue) -> Steps:
    """Find each window's first maximum, then gather the gradients of the windows of an element."""
    element = windows.channels.element
    position = I32 if element.nbytes == 4 else I64
    operands = (EpilogueOperand("out", position), EpilogueOperand("maxima", element))

    def finding(k: Opened) -> tuple[_First, Sequence[ImageSource]]:
        body = _First(position, windows.columns.kernel, k.n)
        return body, [_source(windows, k.arrays[0], element)]

    def gathering(k: Opened) -> tuple[_Gather, Sequence[ImageSource]]:
        types = (element, position)
        sources = [_source(windows, p, t) for p, t in zip(k.arrays, types, strict=True)]
        return _Gather(windows.rows.kernel, windows.columns.kernel, position, k.n), sources

    finding_operands = Epilogue("", operands)
    first = sliding_kernel("pool_positions", windows, ["images"], finding, 4, finding_operands)
    first = renamed(first, {"out": POSITIONS, "maxima": "out"})
    arrays = ["d_out", POSITIONS]
    gather = sliding_kernel("pool_max_gradient", windows.transposed, arrays, gathering, 4, epilogue)
    gather = renamed(gather, {"out": "d_images"})
    return Steps((first, gather), (), {POSITIONS: windows.outputs})


@dataclass(frozen=True)
class _First(WindowBody):
    """The number of the first tap that equals the maximum, an operand called "maxima"."""

    position: Type
    width: int
    n: Integers

    def start(self, f: Function, tile: WindowTile, given: list[Value] | None) -> list[Value]:
        """-1 for each window, then the maxima, which lie as the numbers do."""
        none = f.constant(tile.piece.type.of(self.position), -1)
        maxima = [place.load("maxima") for place in tile.places]
        return [*[none] * len(maxima), *maxima]

    def begin_row(
        self, f: Function, tile: WindowTile, row: Index, taps: Sequence[Index]
    ) -> list[Value]:
        """The numbers of the taps."""
        first = self.n.mul(row, self.width)
        numbers = [self.n.add(first, u) for u in taps]
        return [_splat_number(f, self.n, tile, self.position, number) for number in numbers]

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Keep the first number."""
        largest, current = state[len(tile.places) + window], state[window]
        equal = f.compare("oeq", loaded[0], largest)
        is_first = f.compare("slt", current, zero(current.type))
        state[window] = f.select(f.binary("and", equal, is_first), operand, current)

    def finish(self, f: Function, tile: WindowTile, state: list[Value]) -> list[Value]:
        """The numbers."""
        return state[: len(tile.places)]


def _splat_number(f: Function, n: Integers, tile: WindowTile, type: Type, number: Index) -> Value:
    scalar = n.value(number)
    if type != I64:
        scalar = f.convert("trunc", scalar, type)
    return tile.piece.splat(f, scalar)


@dataclass(frozen=True)
class _Gather(WindowBody):
    """The sum of the gradients of windows whose first maximum is the element."""

    height: int
    width: int
    position: Type
    n: Integers

    def begin_row(
        self, f: Function, tile: WindowTile, row: Index, taps: Sequence[Index]
    ) -> list[Value]:
        """The numbers of the taps, which count backwards."""
        n, last = self.n, self.height * self.width - 1
        numbers = [n.sub(last, n.add(n.mul(row, self.width), u)) for u in taps]
        return [_splat_number(f, n, tile, self.position, number) for number in numbers]

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Add the gradient if the window's maximum is here."""
        is_here = f.compare("eq", loaded[1], operand)
        share = f.select(is_here, loaded[0], zero(loaded[0].type))
        state[window] = f.add(state[window], share)


def _mean_gradient(windows: ImageWindows, divisor: int, epilogue: Epilogue) -> Steps:
    """Sum the gradients of an element's windows; scaled before where windows differ in size."""
    counts, element = _Counts.of(windows), windows.channels.element
    fixed = divisor or counts.fixed
    source = "d_out" if fixed else "shares"

    def make(k: Opened) -> tuple[_Mean, Sequence[ImageSource]]:
        return _Mean(fixed or 1, counts), [_source(windows, k.arrays[0], element)]

    name = f"pool_mean_gradient{fixed or ''}"
    gather = sliding_kernel(name, windows.transposed, [source], make, 6, epilogue)
    gather = renamed(gather, {"out": "d_images"})
    if fixed:
        return Steps((gather,))
    return Steps((_scale(windows, source), gather), (), {source: windows.outputs})


def _scale(windows: ImageWindows, shares: str) -> Call:
    """Return the kernel that divides each window's gradient by its size."""
    epilogue = Epilogue("", (EpilogueOperand("d_out", windows.channels.element),), start="d_out")

    def make(k: Opened) -> tuple[_Scale, Sequence[ImageSource]]:
        return _Scale(0, _Counts(0)), []

    call = sliding_kernel("pool_mean_shares", windows, [], make, 6, epilogue)
    return renamed(call, {"out": shares})


class _Scale(_Mean):
    """The gradient of a window, from which it starts, times 1 / its size; no element is read."""

    def tap(
        self, f: Function, tile: WindowTile, state: list[Value], window: int,
        loaded: Sequence[Value], operand: Value,
    ) -> None:  # fmt: skip
        """Nothing."""
