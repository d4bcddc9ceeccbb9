"""Where the results of a kernel over images belong, and what an epilogue reads beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.images.vectors import Piece
from compiler.codegen.native.kernel import entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Type, Value
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.microkernel import ResultAddresses
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass

NO_EPILOGUE = Epilogue()
"""Stores results as they are."""

NO_OUTPUT = Epilogue(outputs=())
"""Of a kernel that writes an array of its own."""

Strides = tuple[Index, Index, Index, Index]


@dataclass(frozen=True)
class Pixel:
    """A pixel of the output: the number of its image, its row and column, and its own number."""

    image: Index
    row: Index
    column: Index
    number: Index


@dataclass(frozen=True)
class PiecePlace(ResultAddresses):
    """The place of a vector of channels of a pixel; `piece` are the lanes in use."""

    piece: Piece

    def _loaded(self, element: Type, pointer: Value, is_broadcast: bool) -> Value:
        if is_broadcast:
            return self.piece.splat(self.function, self.function.load(element, pointer))
        piece = replace(self.piece, type=self.piece.type.of(element))
        return piece.load(self.function, pointer)

    def store(self, name: str, value: Value) -> None:
        """Store the lanes in use."""
        replace(self.piece, type=value.type).store(self.function, value, self.pointers[name])


@dataclass(frozen=True)
class Results:
    """The output of a kernel and the other operands of its epilogue.

    `strides` are elements between neighbours on the axes image, row, column and channel; None for
    an array of the output's shape without gaps.
    """

    epilogue: Epilogue
    n: Integers
    types: Mapping[str, Type]
    pointers: Mapping[str, Value]
    strides: Mapping[str, Strides | None]
    channels: int

    def places(self, pixel: Pixel, channel: Index, piece: Piece, count: int) -> list[PiecePlace]:
        """The places of a vector of channels in `count` pixels of a row."""
        starts = {name: self._start(name, pixel, channel) for name in self.pointers}
        axis = Axis(
            self.channels,
            {
                name: 1 if strides is None else _known(strides[3])
                for name, strides in self.strides.items()
            },
        )
        mask = None if piece.is_full else piece.mask
        function, lanes, shared = self.n.function, piece.type.lanes, dict[str, Value]()
        places: list[PiecePlace] = []
        for column in range(count):
            pointers = {name: self._moved(start, name, column) for name, start in starts.items()}
            places.append(
                PiecePlace(function, lanes, self.types, pointers, axis, mask, piece, loaded=shared)
            )
        return places

    def _start(self, name: str, pixel: Pixel, channel: Index) -> Value:
        """The address of a channel of a pixel."""
        n, strides = self.n, self.strides[name]
        if strides is None:
            offset = n.add(n.mul(pixel.number, self.channels), channel)
        else:
            places = (pixel.image, pixel.row, pixel.column, channel)
            offset = n.sum(n.mul(a, b) for a, b in zip(places, strides, strict=True))
        return n.function.address(self.pointers[name], offset, self.types[name].nbytes)

    def _moved(self, start: Value, name: str, columns: int) -> Value:
        """The same channel some columns on."""
        strides = self.strides[name]
        step = self.channels if strides is None else strides[2]
        return self.n.function.address(start, self.n.mul(step, columns), self.types[name].nbytes)

    def start(self, places: Sequence[PiecePlace]) -> list[Value] | None:
        """What sums begin from, if the epilogue says."""
        name = self.epilogue.start
        return [place.load(name) for place in places] if name else None

    def store(self, values: Sequence[Value], places: Sequence[PiecePlace]) -> None:
        """Send values through the epilogue and to the outputs."""
        for value, place in zip(values, places, strict=True):
            results = self.epilogue.finish(self.n.function, [value], place)
            for name, result in zip(self.epilogue.outputs, results, strict=True):
                place.store(name, result)


def _known(stride: Index) -> int:
    assert isinstance(stride, int), "the stride of channels is a number"
    return stride


@dataclass(frozen=True)
class Opened:
    """A kernel that has begun: its arrays, the range of its units, and the way to its output."""

    f: Function
    n: Integers
    arrays: Sequence[Value]
    first: Value
    last: Value
    results: Results
    arguments: tuple[str | Dim, ...]


def begin(
    label: str, arrays: Sequence[str], sizes: Sequence[Size], epilogue: Epilogue, element: Type,
    channels: int,
) -> Opened:  # fmt: skip
    """Begin a kernel; its slots are arrays, "out" and the epilogue's operands, then open sizes.

    `element` is the type of results, unless the epilogue says another for "out".
    """
    types = epilogue.types(element) if epilogue.outputs else {}
    operand_strides: dict[str, tuple[Size, ...] | None] = dict.fromkeys(types)
    operand_strides |= {operand.name: operand.strides for operand in epilogue.operands}
    every = [*sizes, *(size for strides in operand_strides.values() for size in strides or ())]
    dims = list(dict.fromkeys(size for size in every if isinstance(size, Dim)))
    names = [*arrays, *types]
    f, values, first, last = entry(label, [POINTER] * len(names) + [I64] * len(dims))
    n = Integers(f, dict(zip(dims, values[len(names) :], strict=True)))
    pointers = dict(zip(types, values[len(arrays) : len(names)], strict=True))
    strides = {
        name: None if axis_strides is None else _four(n, axis_strides)
        for name, axis_strides in operand_strides.items()
    }
    results = Results(epilogue, n, types, pointers, strides, channels)
    return Opened(f, n, values[: len(arrays)], first, last, results, (*names, *dims))


def _four(n: Integers, strides: Sequence[Size]) -> Strides:
    """Strides as indices."""
    image, row, column, channel = (n.of(stride) for stride in strides)
    return image, row, column, channel
