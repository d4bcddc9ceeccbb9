"""What happens to a tile's sums in registers before they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.contraction import Finish, as_summed
from compiler.ir.dims import Size


@dataclass(frozen=True)
class Epilogue:
    """An epilogue: `finish` gets a vector of sums and its place, and returns the vectors to store.

    It returns one for each of `outputs`. `operands` are the arrays it reads and writes; one that
    is called "out" says the output's type and strides where they are not the product's own.
    `start` names the operand from which the sums begin: a bias, or "out" to add to what is there.
    `label` becomes part of the kernel's name.
    """

    label: str = ""
    operands: tuple[EpilogueOperand, ...] = ()
    finish: Finish = as_summed
    outputs: tuple[str, ...] = ("out",)
    start: str = ""

    def types(self, element: Type) -> dict[str, Type]:
        """The operands' elements, "out" first."""
        return {"out": element} | {operand.name: operand.type for operand in self.operands}

    def strides(self, out: Sequence[Size]) -> Mapping[str, Sequence[Size]]:
        """Each operand's strides over the axes of the output, whose own are given."""
        strides = {"out": tuple(out)}
        for operand in self.operands:
            strides[operand.name] = tuple(out) if operand.strides is None else operand.strides
        return strides


def bias(element: Type, axes: int, name: str = "bias") -> Epilogue:
    """Sums that begin from a vector of one element for each column; `axes` are the output's."""
    vector = EpilogueOperand(name, element, (*[0] * (axes - 1), 1))
    return Epilogue("bias", (vector,), start=name)
