"""The inner loops of packing: a panel's columns, one step of the sum after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from compiler.codegen.native.llvm_ir import I64, Function, Index, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.index import Indices, lane_mask

Loops = Sequence[tuple[Value, Value]]
"""Counts and strides of the source, outermost first."""


class Copy(ABC):
    """Emits the copy of a panel."""

    def __init__(self, function: Function, machine: Machine, element: Type) -> None:
        self.function = function
        self.indices = Indices(function, {})
        self.element = element
        self.type = machine.vector(element)
        self.lanes = machine.lanes(element)
        self.nbytes = element.nbytes
        self.step = element.nbytes
        """Bytes of a column in a step of the packed operand."""

    @abstractmethod
    def emit(
        self, source: Value, packed: Value, axes: Loops, vectors: Value, columns: Value,
        stride: Value,
    ) -> None:  # fmt: skip
        """Copy a panel of some vectors; `columns` are left from its first one, `stride` apart."""

    def loops(
        self, axes: Loops, source: Value, packed: Value, body: Callable[[Value, Value], Value]
    ) -> Value:
        """Loops over steps; `body` copies one and returns where the next one belongs."""
        if not axes:
            return body(source, packed)
        count, stride = axes[0]

        def step(_: Value, held: list[Value]) -> list[Value]:
            at = self.loops(axes[1:], held[0], held[1], body)
            return [self.indices.move(held[0], 1, stride, self.nbytes), at]

        return self.function.loop_if_any(0, count, 1, step, [source, packed])[1]

    def each_vector(
        self, vectors: Value, columns: Value, body: Callable[[Value, Value, Value], None]
    ) -> None:
        """Emit a loop over vectors.

        `body` gets the number of the first lane, the column in it, and the lanes in use. A vector
        behind the last column has that one.
        """
        f = self.function
        stop = f.mul(vectors, f.constant(I64, self.lanes))
        last = f.sub(columns, f.constant(I64, 1))

        def vector(lane: Value, _: list[Value]) -> list[Value]:
            column = f.index(self.indices.least(lane, last))
            body(lane, column, f.index(self.indices.least(f.sub(columns, column), self.lanes)))
            return []

        self.function.loop_if_any(0, stop, self.lanes, vector)

    def advance(self, pointer: Value, elements: Index) -> Value:
        """The address some elements on."""
        return self.function.address(pointer, elements, self.nbytes)


class CopyRows(Copy):
    """Columns that are neighbours: whole vectors, then a part of one."""

    def emit(
        self, source: Value, packed: Value, axes: Loops, vectors: Value, columns: Value,
        stride: Value,
    ) -> None:  # fmt: skip
        """Copy a panel, all vectors of a step at a time."""
        f = self.function
        length = f.mul(vectors, f.constant(I64, self.lanes))
        used = f.intrinsic("umin", length, columns)
        whole = f.binary("and", used, f.constant(I64, -self.lanes))
        has_rest = f.compare("ult", whole, used)
        mask = lane_mask(f, self.lanes, f.sub(used, whole))

        def step(source: Value, packed: Value) -> Value:
            def vector(lane: Value, _: list[Value]) -> list[Value]:
                f.store(f.load(self.type, self.advance(source, lane)), self.advance(packed, lane))
                return []

            def rest() -> None:
                at = self.advance(source, whole)
                last = f.masked_load(self.type, at, mask, zero(self.type))
                f.store(last, self.advance(packed, whole))

            f.loop_if_any(0, whole, self.lanes, vector)
            f.when(has_rest, rest)
            return self.advance(packed, length)

        self.loops(axes, source, packed, step)


class CopyApart(Copy):
    """Columns that lie apart: each lane is loaded by itself."""

    def emit(
        self, source: Value, packed: Value, axes: Loops, vectors: Value, columns: Value,
        stride: Value,
    ) -> None:  # fmt: skip
        """Copy a panel, a vector after the other."""
        f = self.function
        width = f.mul(vectors, f.constant(I64, self.lanes))

        def vector(lane: Value, column: Value, lanes: Value) -> None:
            first = self.indices.move(source, column, stride, self.nbytes)
            offsets = self.offsets(lanes, stride)

            def step(source: Value, packed: Value) -> Value:
                f.store(self.gathered(source, offsets), packed)
                return self.advance(packed, width)

            self.loops(axes, first, self.advance(packed, lane), step)

        self.each_vector(vectors, columns, vector)

    def offsets(self, lanes: Value, stride: Value) -> list[Value]:
        """Elements to each lane's column; that of the last one in use for lanes behind it."""
        f = self.function
        last = f.sub(lanes, f.constant(I64, 1))
        clamped = [self.indices.least(lane, last) for lane in range(self.lanes)]
        return [f.index(self.indices.mul(index, stride)) for index in clamped]

    def gathered(self, first: Value, offsets: Sequence[Value]) -> Value:
        """The vector of the elements at some offsets."""
        f, vector = self.function, zero(self.type)
        for lane, offset in enumerate(offsets):
            vector = f.insert(vector, f.load(self.element, self.advance(first, offset)), lane)
        return vector


class CopyColumns(CopyApart):
    """Columns that lie apart, whose steps are neighbours: squares are transposed in registers."""

    def emit(
        self, source: Value, packed: Value, axes: Loops, vectors: Value, columns: Value,
        stride: Value,
    ) -> None:  # fmt: skip
        """Copy a panel, a vector after the other, as many steps at a time as it has lanes."""
        f = self.function
        width = f.mul(vectors, f.constant(I64, self.lanes))
        count = axes[-1][0]
        whole = f.binary("and", count, f.constant(I64, -self.lanes))

        def vector(lane: Value, column: Value, lanes: Value) -> None:
            first = self.indices.move(source, column, stride, self.nbytes)
            offsets = self.offsets(lanes, stride)

            def square(step: Value, held: list[Value]) -> list[Value]:
                return [self._square(self.advance(held[1], step), held[0], offsets, width), held[1]]

            def single(step: Value, held: list[Value]) -> list[Value]:
                f.store(self.gathered(self.advance(held[1], step), offsets), held[0])
                return [self.advance(held[0], width), held[1]]

            def steps(source: Value, packed: Value) -> Value:
                state = f.loop_if_any(0, whole, self.lanes, square, [packed, source])
                return f.loop_if_any(whole, count, 1, single, [state[0], source])[0]

            self.loops(axes[:-1], first, self.advance(packed, lane), steps)

        self.each_vector(vectors, columns, vector)

    def _square(
        self, source: Value, packed: Value, offsets: Sequence[Value], width: Value
    ) -> Value:  # fmt: skip
        """Copy as many steps as a vector has lanes; returns the address behind them."""
        f = self.function
        rows = [f.load(self.type, self.advance(source, offset)) for offset in offsets]
        for row in transposed(f, rows):
            f.store(row, packed)
            packed = self.advance(packed, width)
        return packed


def transposed(function: Function, rows: Sequence[Value]) -> list[Value]:
    """The transpose of a square matrix of vectors, by exchanging halves of ever smaller squares."""
    rows, size = list(rows), len(rows)
    span = size // 2
    while span:
        # lanes whose number has the bit of `span` change places with the row that has it
        low = [lane if not lane & span else size + lane - span for lane in range(size)]
        high = [lane + span if not lane & span else size + lane for lane in range(size)]
        for row in range(size):
            if not row & span:
                a, b = rows[row], rows[row + span]
                rows[row] = function.shuffle(a, b, low)
                rows[row + span] = function.shuffle(a, b, high)
        span //= 2
    return rows


COPIES: dict[str, Callable[[Function, Machine, Type], Copy]] = {
    "rows": CopyRows,
    "columns": CopyColumns,
    "apart": CopyApart,
}
"""By how the elements of a vector lie."""
