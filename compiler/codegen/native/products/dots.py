"""Dot-product instructions: products of bfloat16 or of bytes, whose sums have 32 bits.

A lane of the instruction adds the products of some neighbouring pairs of elements to its sum. A
step of the reduction is therefore a *word* of 2 or 4 elements: the left operand's lie side by side,
the right operand is packed so. The last word of a run may be partial: what is missing is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.native.llvm_ir import BF16, F32, Function, Type, Value
from compiler.codegen.native.machine import Machine


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction: each lane of `sums` adds the products of `pack` elements."""

    element: Type
    sums: Type
    pack: int
    feature: str
    intrinsic: str

    def multiply(self, f: Function, left: Value, right: Value, sums: Value) -> Value:
        """Add the products of vectors of words to a vector of sums."""
        type = self.element.vector(sums.type.lanes * self.pack)
        words = [f.value(type, f"bitcast {each} to {type}") for each in (left, right)]
        return f.call(f"llvm.{self.intrinsic}.{sums.type.lanes * 32}", sums.type, sums, *words)


BF16_DOT = Dot(BF16, F32, 2, "avx512bf16", "x86.avx512bf16.dpbf16ps")

DOTS = (BF16_DOT,)


def dot_of(machine: Machine, element: Type) -> Dot | None:
    """The machine's dot product of elements of a type; None if it has none."""
    return next(
        (each for each in DOTS if each.element == element and each.feature in machine.features),
        None,
    )
