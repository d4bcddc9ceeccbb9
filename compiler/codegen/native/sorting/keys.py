"""Sort keys: unsigned integers in the order of values, with the indices of these.

A value of at most 32 bits is the upper half of one word, its index the lower half. A value of 64
bits is a word, its index the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.llvm_ir import I32, I64, Function, Index, Value, constant
from compiler.codegen.native.loops.types import convert, from_memory
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

WORD = 8
"""Bytes of a word of a key."""


@dataclass(frozen=True)
class SortKeys:
    """The keys of values of a dtype, in descending order if `largest` are first."""

    dtype: DType
    largest: bool

    @property
    def words(self) -> int:
        """The number of words of a key."""
        return 2 if self.dtype.itemsize == WORD else 1

    def number(self, f: Function, stored: Value) -> Value:
        """Stored values, which may be lanes, as unsigned integers in their order.

        -0 equals 0; NaN is larger than infinity.
        """
        value = from_memory(f, stored, self.dtype)
        bits = I64 if self.words > 1 else I32
        if value.type.is_float:
            zeroed = f.add(value, constant(value.type, 0.0))
            nan = constant(value.type, float("nan"))
            canonical = f.select(f.compare("uno", value, value), nan, zeroed)
            number = f.convert("bitcast", canonical, bits)
            sign = f.binary("ashr", number, constant(number.type, bits.bits - 1))
            magnitude = constant(number.type, (1 << (bits.bits - 1)) - 1)
            number = f.binary("xor", number, f.binary("and", sign, magnitude))
        else:
            number = convert(f, value, self.dtype, bits)
        least, greatest = -(1 << (bits.bits - 1)), (1 << (bits.bits - 1)) - 1
        return f.binary("xor", number, constant(number.type, greatest if self.largest else least))

    def key(self, f: Function, number: Value, index: Value) -> list[Value]:
        """The words of the key of a number and its index."""
        if self.words > 1:
            return [number, index]
        wide = f.binary("shl", f.convert("zext", number, I64), constant(I64, 32))
        return [f.binary("or", wide, index)]

    def loaded_number(self, f: Function, keys: Value, place: Index) -> Value:
        """The number of a key in memory."""
        (number, *_) = loaded(f, keys, place, self.words)
        if self.words > 1:
            return number
        return f.convert("trunc", f.binary("lshr", number, constant(I64, 32)), I32)

    def loaded_index(self, f: Function, keys: Value, place: Index) -> Value:
        """The index of a key in memory."""
        word = loaded(f, keys, place, self.words)[-1]
        return word if self.words > 1 else f.binary("and", word, constant(I64, 0xFFFFFFFF))


def loaded(f: Function, keys: Value, place: Index, words: int) -> list[Value]:
    """The words of a key in memory."""
    address = f.address(keys, place, WORD * words)
    return [f.load(I64, f.address(address, word, WORD)) for word in range(words)]


def store(f: Function, key: Sequence[Value], keys: Value, place: Index) -> None:
    """Store the words of a key."""
    address = f.address(keys, place, WORD * len(key))
    for number, word in enumerate(key):
        f.store(word, f.address(address, number, WORD))
