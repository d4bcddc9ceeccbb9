"""Packing for dot products: the elements of a word side by side, for each column."""

from __future__ import annotations

from compiler.codegen.native.llvm_ir import I32, I64, Function, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.copying import Copy, Loops
from compiler.codegen.native.products.dots import Dot
from compiler.codegen.native.products.index import lane_mask


class CopyWords(Copy):
    """Words of a run of elements: element by element into rows of words that begin as zeros."""

    def __init__(self, function: Function, machine: Machine, dot: Dot, run: Value) -> None:
        super().__init__(function, machine, dot.element)
        self.type = machine.vector(dot.sums)
        self.lanes = machine.lanes(dot.sums)
        self.step = dot.sums.nbytes
        self.dot = dot
        self.pack = dot.pack
        self.run = run

    def emit(
        self, source: Value, packed: Value, axes: Loops, vectors: Value, columns: Value,
        stride: Value,
    ) -> None:  # fmt: skip
        """Copy a panel, an element of all columns after the other."""
        f = self.function
        self.stride = stride
        self.row = f.mul(vectors, f.constant(I64, self.lanes))
        self.columns = f.intrinsic("umin", self.row, columns)
        self.header = packed
        if self.dot.header:
            self._clear(packed)
            packed = f.address(packed, self.row, self.step)
        self._axis(axes, source, [packed, f.constant(I64, 0)])

    def _axis(self, axes: Loops, source: Value, held: list[Value]) -> list[Value]:
        """Loops over elements; `held` are the row of words and the element's place in its run."""
        if not axes:
            return self._element(source, *held)
        count, stride = axes[0]

        def element(_: Value, carried: list[Value]) -> list[Value]:
            source, *sums = carried
            sums = self._axis(axes[1:], source, sums)
            return [self.indices.move(source, 1, stride, self.nbytes), *sums]

        return self.function.loop_if_any(0, count, 1, element, [source, *held])[1:]

    def _element(self, source: Value, words: Value, place: Value) -> list[Value]:
        """Copy an element of each column; returns the row and the place of the next one."""
        f = self.function
        one = f.constant(I64, 1)
        last = f.constant(I64, self.pack - 1)
        part = f.binary("and", place, last)
        f.when(f.compare("eq", part, f.constant(I64, 0)), lambda: self._clear(words))
        self._copy(source, words, part)
        following = f.add(place, one)
        is_end = f.compare("eq", following, self.run)
        is_full = f.binary("or", is_end, f.compare("eq", part, last))
        after = f.address(words, self.row, self.step)
        return [
            f.select(is_full, after, words), f.select(is_end, f.constant(I64, 0), following)
        ]  # fmt: skip

    def _clear(self, words: Value) -> None:
        """Fill a row of words with zeros."""
        f = self.function

        def vector(lane: Value, _: list[Value]) -> list[Value]:
            f.store(zero(self.type), f.address(words, lane, self.step))
            return []

        f.loop_if_any(0, self.row, self.lanes, vector)

    def _copy(self, source: Value, words: Value, part: Value) -> None:
        """Copy an element of each column to its part of a word."""
        f, bits = self.function, Type(f"i{self.element.bits}")
        target = f.address(words, part, self.nbytes)

        def column(lane: Value, held: list[Value]) -> list[Value]:
            value = f.load(bits, held[0])
            f.store(value, f.address(target, lane, self.step))
            if self.dot.header:
                self._count(lane, value)
            return [self.indices.move(held[0], 1, self.stride, self.nbytes)]

        f.loop_if_any(0, self.columns, 1, column, [source])

    def _count(self, lane: Value, value: Value) -> None:
        """Subtract from the header what the left operand's bias adds to a column's sum."""
        f = self.function
        at = f.address(self.header, lane, self.step)
        type = value.type.of(self.dot.sums)
        product = f.mul(f.convert("sext", value, I32), f.constant(type, self.dot.bias))
        f.store(f.sub(f.load(type, at), product), at)


class CopyWordRows(CopyWords):
    """Columns that are neighbours: a vector of elements at a time."""

    def _copy(self, source: Value, words: Value, part: Value) -> None:
        """Copy an element of each column to its part of a word, which is zero before."""
        f, bits = self.function, Type(f"i{self.element.bits}")
        vector = I32.vector(self.lanes)
        shift = f.mul(f.convert("trunc", part, I32), f.constant(I32, self.element.bits))
        shifts = f.splat(shift, self.lanes)

        def columns(lane: Value, _: list[Value]) -> list[Value]:
            mask = lane_mask(f, self.lanes, self._left(lane))
            at = f.address(source, lane, self.nbytes)
            loaded = f.masked_load(vector.of(bits), at, mask, zero(vector.of(bits)))
            target = f.address(words, lane, self.step)
            moved = f.binary("shl", f.convert("zext", loaded, I32), shifts)
            f.store(f.binary("or", f.load(vector, target), moved), target)
            if self.dot.header:
                self._count(lane, loaded)
            return []

        f.loop_if_any(0, self.columns, self.lanes, columns)

    def _left(self, lane: Value) -> Value:
        """The columns from a lane on, at most a vector."""
        left = self.function.sub(self.columns, lane)
        return self.function.index(self.indices.least(left, self.lanes))
