"""Conversion of sparse gradients to dense values, and to their row indices."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, reads, reads_rows, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.math.axes import check_indices
from compiler.ops.shared_kernels import add_rows, copy, fill
from compiler.ops.train.selected_rows import lower_add_rows, rows_type


class DensifyRows(OpDef, op="densify_rows"):
    """Out has `height` rows: Out[r] = the sum of the rows of X whose index is r."""

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    height = required(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape((self.height, *s.X.shape[1:]))

    def numpy(self, X: Array, X_rows: Array) -> Array:
        check_indices(X_rows, self.height, "densify_rows")
        Out = np.zeros((self.height, *X.shape[1:]), X.dtype)
        np.add.at(Out, X_rows, X)
        return Out

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        self.check_values(k, s)
        k.line(f"{Out}.fill(0)")
        lower_add_rows(k, Out, s.X_rows, s.X)

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.X_rows}, {self.height}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        fill(k, s.Out, 0)
        add_rows(k, s.X, s.X_rows, s.Out)


class RowNumbers(OpDef, op="row_numbers"):
    """Out = the row indices of a sparse gradient, int64, in the order of its values."""

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return rows_type(s.X.shape[0])

    def numpy(self, X: Array, X_rows: Array | None) -> Array:
        if X_rows is None:
            raise ValueError("row_numbers takes sparse rows, but X is dense")
        return X_rows

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.X_rows, s.Out)
