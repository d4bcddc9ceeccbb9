"""Row (lookahead) convolution: each column of a sequence is convolved over its next rows."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, reads, reads_lod, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Operand
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence.offsets import even_offsets, require_one_level, window_values
from compiler.ops.sequence.sequence_kernels import rows_bounds
from compiler.ops.type_checks import differ, shown


def rows_of_batch(X: Array, lod: list[Array] | None) -> Array:
    """The sequence offsets: those of the LoD, or equal lengths for X [batch, length, size]."""
    return lod[-1] if lod else even_offsets(len(X), X.shape[1])


class RowConv(OpDef, op="row_conv"):
    """Out[t] = sum over k of Filter[k] * X[t + k], up to the end of the sequence.

    X is [rows, size] with a LoD, or [batch, length, size]; Filter is [steps ahead + 1, size].
    Reference: row_conv_op.cc.
    """

    X = reads()
    X_lod = reads_lod("X", optional=True)
    Filter = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Filter = s.X, s.Filter
        X_lod = s.all("X_lod")
        if X_lod:
            require_one_level("row_conv", "X", X_lod)
        rank = 2 if X_lod else 3
        if X.rank != rank or Filter.rank != 2 or differ(X.shape[-1], Filter.shape[1]):
            raise ShapeError(
                f"row_conv: {shown(X=X, Filter=Filter)} do not go together, expected X [rows, size]"
                " with a LoD, or [batch, length, size], and Filter [steps, size]"
            )
        return X

    def numpy(self, X: Array, X_lod: list[Array] | None, Filter: Array) -> Array:
        rows = X.reshape(-1, X.shape[-1])
        seen = window_values(rows, rows_of_batch(X, X_lod), 0, len(Filter), 0.0)
        return np.einsum("tks,ks->ts", seen, Filter).reshape(X.shape)

    def grad(
        self, X: Array, X_lod: list[Array] | None, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        offsets, length = rows_of_batch(X, X_lod), len(Filter)
        rows, d_rows = X.reshape(-1, X.shape[-1]), d_Out.reshape(-1, X.shape[-1])
        seen = window_values(rows, offsets, 0, length, 0.0)
        above = window_values(d_rows, offsets, 1 - length, length, 0.0)
        d_X = np.einsum("tks,ks->ts", above, Filter[::-1]).reshape(X.shape)
        return {"X": d_X, "Filter": np.einsum("tks,ts->ks", seen, d_rows)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Filter = s.X, s.Filter
        table = self.table(X.shape)
        k.expect_size("columns", table[1], Filter.shape[1])
        rows_in = self.device_bounds(k, X.shape, s.host.all("X_lod"))
        i, j = k.grid(*table)
        step = k.loop(Filter.shape[0])
        seen = X.reshaped(table).at(i + step, j, where=i + step < rows_in[1, i], other=0)
        k.store(s.Out.reshaped(table), (i, j), k.sum(seen * Filter[step, j], step))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Filter = s.X, s.Filter
        table = self.table(X.shape)
        rows_in, above = (
            self.device_bounds(k, X.shape, s.host.all("X_lod")),
            s.d_Out.reshaped(table),
        )
        if (d_X := s.get("d_X")) is not None:
            i, j = k.grid(*table)
            step = k.loop(Filter.shape[0])
            upstream = above.at(i - step, j, where=i - step >= rows_in[0, i], other=0)
            k.store(d_X.reshaped(table), (i, j), k.sum(upstream * Filter[step, j], step))
        if (d_Filter := s.get("d_Filter")) is not None:
            step, j = k.grid(*Filter.shape)
            i = k.loop(table[0])
            seen = X.reshaped(table).at(i + step, j, where=i + step < rows_in[1, i], other=0)
            k.store(d_Filter, (step, j), k.sum(seen * above[i, j], i))

    def table(self, X: Shape) -> tuple[Size, Size]:
        """The number of rows, and of elements per row."""
        return product(X[:-1]), X[-1]

    def device_bounds(self, k: KernelBuilder, X: Shape, X_lod: list[Operand]) -> DeviceOperand:
        """For each row the begin and end of its sequence, on the device: int64 [2, rows]."""
        rows = self.table(X)[0]
        level = X_lod[-1] if X_lod else k.on_host(even_offsets, X[0], X[1])
        return rows_bounds(k, level, rows)
