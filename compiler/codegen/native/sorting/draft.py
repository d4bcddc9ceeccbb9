"""Sorting ops by a kernel of their own."""

from __future__ import annotations

from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.native.image_ops import ImageKernelBuilder
from compiler.codegen.native.llvm_ir import I64
from compiler.codegen.native.sorting.rows import Rows, first_values
from compiler.codegen.native.step_draft import ExpectedShape, StepDraft
from compiler.ir.dims import product


def sorted_rows(
    k: ImageKernelBuilder, axis: int, largest: bool, X: KernelOperand, values: KernelOperand,
    indices: KernelOperand,
) -> StepDraft:  # fmt: skip
    """The first values of X along an axis, and their indices."""
    shape, count = X.shape, values.shape[axis]
    sizes = product(shape[:axis]), shape[axis], product(shape[axis + 1 :])
    rows = Rows(k.machine, X.type.dtype, sizes, count, largest)
    expected = (*shape[:axis], count, *shape[axis + 1 :])
    shapes = tuple(ExpectedShape.of(operand, expected) for operand in (values, indices))
    arrays = {"X": X.operand, "Out": values.operand, "Indices": indices.operand}
    steps = k.made(first_values, rows)
    return StepDraft(steps, I64, arrays, shapes=shapes)
