"""Convolution of each column of sequences by itself, over the rows to come."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, reads, reads_lod, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import differ, shown
from compiler.ops.sequence.sequence import even_offsets, require_one_level, window_values


def rows_of_batch(X: Array, lod: list[Array] | None) -> Array:
    """Where sequences lie: as the LoD says, or all of one length in X [batch, length, size]."""
    return lod[-1] if lod else even_offsets(len(X), X.shape[1])


class RowConv(OpDef, op="row_conv"):
    """Out[t] = sum over k of Filter[k] * X[t + k], as far as the sequence goes.

    X is [rows, size] with a LoD, or [batch, length, size]; Filter is [steps ahead + 1, size].
    Reference: row_conv_op.cc.
    """

    X = reads()
    X_lod = reads_lod("X", optional=True)
    Filter = reads()
    Out = writes()

    def infer(
        self, X: TensorType, X_lod: list[TensorType] | None, Filter: TensorType
    ) -> TensorType:
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
