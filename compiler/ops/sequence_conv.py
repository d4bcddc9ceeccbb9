"""Convolutions along sequences: every row sees a window of its own sequence."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, attr, reads, reads_lod, required, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import differ, require_same_dtype, shown
from compiler.ops.sequence import require_one_level, window_rows, window_values


def padding_rows(beyond: Array, start: int) -> Array:
    """The rows of the trained padding that stand for what lies outside: first those before."""
    outside = beyond[beyond != 0]
    return max(0, -start) + outside - (outside > 0)


def context(X: Array, offsets: Array, start: int, length: int, padding: Array | None) -> Array:
    """The windows of X around each row, with zeros or `padding` outside: [rows, length, size]."""
    seen = window_values(X, offsets, start, length, 0.0)
    if padding is not None:
        beyond = window_rows(offsets, start, length)[1]
        seen[beyond != 0] = padding[padding_rows(beyond, start)]
    return seen


def context_gradient(d_Out: Array, offsets: Array, start: int, weight: Array) -> Array:
    """The gradient of X, by the filter [length, size, filters]: what each row gave to whom."""
    length, size, filters = weight.shape
    above = window_values(d_Out, offsets, 1 - start - length, length, 0.0)
    mirrored = weight[::-1].transpose(0, 2, 1).reshape(length * filters, size)
    return above.reshape(len(d_Out), length * filters) @ mirrored


class SequenceConv(OpDef, op="sequence_conv"):
    """Out[t] = the rows t + contextStart … of X, contextLength of them, end to end, @ Filter.

    X is [rows, size], Filter [contextLength · size, filters], Out [rows, filters]. Rows outside of
    the sequence are zeros, or with `paddingTrainable` those of PaddingData [before + after, size].
    Reference: sequence_conv_op.h.
    """

    X = reads()
    X_lod = reads_lod("X")
    PaddingData = reads(optional=True)
    Filter = reads()
    Out = writes()
    contextLength = required(int)
    contextStart = attr(0)
    contextStride = attr(1)
    paddingTrainable = attr(False)

    def infer(
        self,
        X: TensorType,
        X_lod: list[TensorType],
        PaddingData: TensorType | None,
        Filter: TensorType,
    ) -> TensorType:
        require_one_level("sequence_conv", "X", X_lod)
        require_same_dtype("sequence_conv", X=X, Filter=Filter)
        if self.contextStride != 1 or self.contextLength < 1:
            raise BadAttribute(
                f"sequence_conv: 'contextStride' is {self.contextStride} and 'contextLength' "
                f"{self.contextLength}, expected 1, and 1 or more"
            )
        if X.rank != 2 or Filter.rank != 2 or self.misfits(X, Filter):
            raise ShapeError(
                f"sequence_conv: {shown(X=X, Filter=Filter)} do not go together, expected X "
                f"[rows, size] and Filter [{self.contextLength} · size, filters]"
            )
        if self.paddingTrainable:
            self.require_padding(X, PaddingData)
        return X.with_shape((X.shape[0], Filter.shape[1]))

    def misfits(self, X: TensorType, Filter: TensorType) -> bool:
        """True where the filter has not as many rows as a window has numbers."""
        return differ(X.shape[1] * self.contextLength, Filter.shape[0])

    def require_padding(self, X: TensorType, PaddingData: TensorType | None) -> None:
        """ShapeError where there is no row for each place that windows reach outside."""
        before, after = max(0, -self.contextStart), self.contextStart + self.contextLength - 1
        shape: tuple[Size, ...] = (before + max(0, after), X.shape[1])
        if PaddingData is None or PaddingData.rank != 2 or differ(PaddingData.shape[0], shape[0]):
            raise ShapeError(
                f"sequence_conv: PaddingData is {PaddingData}, expected {X.with_shape(shape)}"
            )

    def numpy(
        self, X: Array, X_lod: list[Array], PaddingData: Array | None, Filter: Array
    ) -> Array:
        padding = PaddingData if self.paddingTrainable else None
        seen = context(X, X_lod[0], self.contextStart, self.contextLength, padding)
        return seen.reshape(len(X), -1) @ Filter

    def grad(
        self, X: Array, X_lod: list[Array], PaddingData: Array | None, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        start, length, size = self.contextStart, self.contextLength, X.shape[1]
        padding = PaddingData if self.paddingTrainable else None
        seen = context(X, X_lod[0], start, length, padding).reshape(len(X), length * size)
        weight = Filter.reshape(length, size, -1)
        d_X = context_gradient(d_Out, X_lod[0], start, weight)
        found = {"X": d_X, "Filter": seen.T @ d_Out}
        if PaddingData is not None:
            found["PaddingData"] = np.zeros_like(PaddingData)
        if padding is not None:
            beyond = window_rows(X_lod[0], start, length)[1]
            d_seen = (d_Out @ Filter.T).reshape(len(X), length, size)[beyond != 0]
            np.add.at(found["PaddingData"], padding_rows(beyond, start), d_seen)
        return found


def rows_of_batch(X: Array, lod: list[Array] | None) -> Array:
    """Where sequences lie: as the LoD says, or all of one length in X [batch, length, size]."""
    return lod[-1] if lod else np.arange(len(X) + 1) * X.shape[1]


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
