"""The microkernel of dot products: each step of the sum is a word of neighbouring elements."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.llvm_ir import F32, I32, Index, Type, Value
from compiler.codegen.native.products.microkernel import Microkernel
from compiler.codegen.native.products.place import ResultAddresses


class DotMicrokernel(Microkernel):
    """The microkernel whose steps are words; its sums reach the epilogue as float32."""

    def _sums(
        self, start: Sequence[ResultAddresses] | None, count: int, right: Value
    ) -> tuple[list[Value], Value]:
        """The sums begin from the header of the panel, if it has one."""
        dot = self.spec.dot
        assert dot is not None
        if not dot.header:
            return super()._sums(start, count, right)
        assert start is None, "sums of bytes begin from the header"
        header = self._right(right, 0)
        return header * (count // len(header)), self._after(right, dot.header)

    def _innermost(self, count: Index, left: Value, state: list[Value]) -> list[Value]:
        """Whole words, then a partial one."""
        tail, dot = self.indices.of(self.spec.tail), self.spec.dot
        assert dot is not None
        self.partial: Index = 0
        if tail == 0:
            return super()._innermost(count, left, state)
        if isinstance(tail, int):
            whole = self.indices.sub(count, 1)
            state = super()._innermost(whole, left, state) if whole != 0 else state
            return self._partial(tail, self._behind(left, whole), state)
        whole = self.indices.sub(count, self._any(tail))
        state = super()._innermost(whole, left, state)
        behind = self._behind(left, whole)
        for size in range(1, dot.pack):
            state = self._if_tail(tail, size, behind, state)
        return state

    def _any(self, tail: Value) -> Index:
        """1 if there is a partial word."""
        return self.indices.least(tail, 1)

    def _if_tail(self, tail: Value, size: int, left: Value, state: list[Value]) -> list[Value]:
        is_size = self.function.compare("eq", tail, self.function.index(size))
        return self.function.choose(
            is_size, lambda: self._partial(size, left, state), lambda: list(state)
        )

    def _behind(self, left: Value, words: Index) -> Value:
        axis = self.spec.sums[-1]
        stride = self.indices.of(axis.stride("a"))
        return self.indices.move(left, words, stride, self.spec.types["a"].nbytes)

    def _partial(self, elements: int, left: Value, state: list[Value]) -> list[Value]:
        """The last word, of fewer elements."""
        self.partial = elements
        state = self._iteration(1, [left, *state])[1:]
        self.partial = 0
        return state

    def _row(self, pointer: Value) -> Value:
        f, dot = self.function, self.spec.dot
        assert dot is not None
        if self.partial:
            assert isinstance(self.partial, int)
            row = f.splat(self._joined(pointer, range(self.partial)), self.lanes)
        else:
            row = f.splat(f.load(I32, pointer, self.spec.types["a"].nbytes), self.lanes)
        if not dot.bias:
            return row
        return f.binary("xor", row, f.constant(row.type, dot.bias * 0x01010101 - (1 << 32)))

    def _joined(self, pointer: Value, elements: Sequence[int]) -> Value:
        """A word of some elements; the others are zero."""
        f, type = self.function, self.spec.types["a"]
        bits = Type(f"i{type.bits}")
        word = f.constant(I32, 0)
        for offset in elements:
            part = f.convert("zext", f.load(bits, f.address(pointer, offset, type.nbytes)), I32)
            shift = f.constant(I32, offset * type.bits)
            word = f.binary("or", word, f.binary("shl", part, shift)) if offset else part
        return word

    def _multiply(self, row: Value, vector: Value, total: Value) -> Value:
        assert self.spec.dot is not None
        return self.spec.dot.multiply(self.function, row, vector, total)

    def _finish(self, places: Sequence[ResultAddresses], sums: Sequence[Value]) -> None:
        """The sums as float32 through the epilogue."""
        if self.spec.element != F32:
            sums = [self.function.convert("sitofp", total, F32) for total in sums]
        super()._finish(places, sums)
