"""Dot-product instructions: products of bfloat16 or of bytes, whose sums have 32 bits.

A lane of the instruction adds the products of some neighbouring pairs of elements to its sum. A
step of the reduction is therefore a *word* of 2 or 4 elements: the left operand's lie side by side,
the right operand is packed so. The last word of a run may be partial: what is missing is zero.
"""

from __future__ import annotations

from compiler.codegen.native.llvm_ir import BF16, F32, I8, I32, Function, Type, Value
from compiler.codegen.native.machine import Machine
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction: each lane of `sums` adds the products of `pack` elements.

    `bias` is what must be added to elements of the left operand, which the instruction takes as
    unsigned; the sums begin from what that adds to them, negated. It lies before the steps of a
    panel, as `header` step.
    """

    element: Type
    sums: Type
    pack: int
    feature: str
    intrinsic: str
    bias: int = 0

    @property
    def header(self) -> int:
        """Steps of a packed panel before those of the sum."""
        return int(self.bias > 0)

    @property
    def result(self) -> Type:
        """The type of the sums in an epilogue: float32."""
        return F32

    def multiply(self, f: Function, left: Value, right: Value, sums: Value) -> Value:
        """Add the products of vectors of words to a vector of sums."""
        type = self.element.vector(sums.type.lanes * self.pack)
        words = [f.value(type, f"bitcast {operand} to {type}") for operand in (left, right)]
        return f.call(f"llvm.{self.intrinsic}.{sums.type.lanes * 32}", sums.type, sums, *words)


BF16_DOT = Dot(BF16, F32, 2, "avx512bf16", "x86.avx512bf16.dpbf16ps")

INT8_DOT = Dot(I8, I32, 4, "avx512vnni", "x86.avx512.vpdpbusd", bias=128)

DOTS = (BF16_DOT, INT8_DOT)


def dot_of(machine: Machine, element: Type) -> Dot | None:
    """The machine's dot product of elements of a type; None if it has none."""
    return next(
        (dot for dot in DOTS if dot.element == element and dot.feature in machine.features),
        None,
    )
