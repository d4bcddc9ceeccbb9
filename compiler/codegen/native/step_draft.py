"""Kernels of an op as a value: complete before any of it is written into a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.narrow_factors import Factors
from compiler.codegen.native.products.contraction import Steps
from compiler.ir.dims import Size
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class ExpectedShape:
    """The shape in which kernels read or write an operand."""

    name: str
    shape: Shape
    expected: tuple[Size, ...]

    @staticmethod
    def of(operand: KernelOperand, expected: Sequence[Size]) -> ExpectedShape:
        """The shape that an operand is expected to have."""
        return ExpectedShape(operand.operand.name, operand.shape, tuple(expected))


@dataclass(frozen=True)
class StepDraft:
    """Calls of kernels over `arrays`, by name, and what is to be checked before them.

    The factors of a product, if there are any, are arrays of the names `left` and `right`. `stores`
    is the kernel whose stores are the epilogue of the calls.
    """

    steps: Steps
    element: Type
    arrays: Mapping[str, NumpyOperand]
    factors: Factors | None = None
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    shapes: tuple[ExpectedShape, ...] = ()
    stores: KernelBody | None = None

    def write(self, writer: NativeModuleWriter) -> None:
        """Append the checks and the calls to the step; ShapeError for shapes known to differ."""
        for each in self.shapes:
            writer.accesses.check_shape(each.name, each.shape, each.expected)
        arrays = dict(self.arrays)
        if self.factors is not None:
            left, right = self.factors.write(writer)
            arrays |= dict.fromkeys(self.left, left) | dict.fromkeys(self.right, right)
        if self.stores is not None:
            writer.accesses.check_kernel(self.stores, exactly=True)
        writer.steps(self.steps, arrays, self.element)
