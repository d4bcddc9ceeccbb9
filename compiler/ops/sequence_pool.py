"""Ops that look at each sequence as a whole: pooling, and softmax over its rows."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import OpDef, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.sequence import count_of, require_column, require_one_level, segment_sums

POOLS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")
"""Sums may be divided by the length (AVERAGE) or by its root (SQRT)."""


def weights_of(lengths: Array, kind: str, rank: int) -> Array:
    """What a pool multiplies the sum of each sequence by, in the shape [count, 1, …]."""
    divisors = np.maximum(lengths, 1) ** {"SUM": 0.0, "AVERAGE": 1.0, "SQRT": 0.5}[kind]
    return (1.0 / divisors).reshape(-1, *(1,) * (rank - 1))


def end_rows(offsets: Array, kind: str) -> Array:
    """The FIRST or the LAST row of each sequence that has any."""
    filled = np.flatnonzero(np.diff(offsets))
    return offsets[filled] if kind == "FIRST" else offsets[filled + 1] - 1


def largest_rows(X: Array, starts: Array, lengths: Array) -> Array:
    """Where each sequence has its largest value, the first if several: int32 [count, …].

    Every sequence has rows, and they are those of X. A NaN counts as the largest.
    """
    spread = (-1, *(1,) * (X.ndim - 1))
    largest = np.repeat(np.maximum.reduceat(X, starts, axis=0), lengths, axis=0)
    ends = np.repeat(starts + lengths - 1, lengths).reshape(spread)
    rows = np.arange(len(X)).reshape(spread)
    found = np.where(np.equal(X, largest), rows, ends)
    return np.minimum.reduceat(found, starts, axis=0).astype(np.int32)


class SequencePool(OpDef, op="sequence_pool"):
    """Out[i] = the rows of sequence i of X made one: a sum, a mean, the largest, first or last.

    X is [rows, …], Out [count, …], and `pad_value` stands for an empty sequence. Sequences are
    those of the innermost LoD level; Out has the levels outside of it. MaxIndex, of Out's shape,
    has the rows of the largest values (MAX), and -1 elsewhere. Reference: sequence_pool_op.h.
    """

    lod_like = ""

    X = reads()
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    MaxIndex = writes(optional=True)
    pooltype = attr("AVERAGE")
    pad_value = attr(0.0)
    is_test = attr(False)

    def infer(self, X: TensorType, X_lod: list[TensorType]) -> dict[str, object]:
        if self.pooltype not in POOLS:
            expected = ", ".join(POOLS)
            raise BadAttribute(f"sequence_pool: 'pooltype' is {self.pooltype!r}, not {expected}")
        Out = X.with_shape((count_of(X_lod[-1]), *X.shape[1:]))
        return {"Out": Out, "MaxIndex": Out.with_dtype(DType.INT32), "Out_lod": X_lod[:-1]}

    def numpy(self, X: Array, X_lod: list[Array]) -> dict[str, object]:
        offsets, lengths = X_lod[-1], np.diff(X_lod[-1])
        filled = np.flatnonzero(lengths)
        Out = np.full((len(lengths), *X.shape[1:]), self.pad_value, X.dtype)
        MaxIndex = np.full(Out.shape, -1, np.int32)
        if self.pooltype == "MAX":
            rows = largest_rows(X, offsets[filled], lengths[filled])
            Out[filled] = np.take_along_axis(X, rows.astype(np.int64), axis=0)
            MaxIndex[filled] = rows
        elif self.pooltype in ("FIRST", "LAST"):
            Out[filled] = X[end_rows(offsets, self.pooltype)]
        else:
            sums = np.add.reduceat(X, offsets[filled], axis=0)
            Out[filled] = sums * weights_of(lengths[filled], self.pooltype, X.ndim)
        return {"Out": Out, "MaxIndex": MaxIndex, "Out_lod": X_lod[:-1]}

    def grad(
        self, X: Shape, X_lod: list[Array], MaxIndex: Array | None, d_Out: Array
    ) -> dict[str, Array]:
        offsets, lengths = X_lod[-1], np.diff(X_lod[-1])
        filled = np.flatnonzero(lengths)
        if self.pooltype in ("SUM", "AVERAGE", "SQRT"):
            shares = d_Out * weights_of(lengths, self.pooltype, d_Out.ndim)
            return {"X": np.repeat(shares.astype(d_Out.dtype), lengths, axis=0)}
        d_X = np.zeros((offsets[-1], *d_Out.shape[1:]), d_Out.dtype)
        if self.pooltype == "MAX" and MaxIndex is not None:
            np.put_along_axis(d_X, MaxIndex[filled].astype(np.int64), d_Out[filled], axis=0)
        else:
            d_X[end_rows(offsets, self.pooltype)] = d_Out[filled]
        return {"X": d_X}


class SequenceSoftmax(OpDef, op="sequence_softmax"):
    """Out = exp(X) divided by its sum over the sequence; X is [rows] or [rows, 1].

    Reference: sequence_softmax_op.h.
    """

    X = reads()
    X_lod = reads_lod("X")
    Out = writes()
    data_format = attr("AnyLayout")

    def infer(self, X: TensorType, X_lod: list[TensorType]) -> TensorType:
        require_one_level("sequence_softmax", "X", X_lod)
        if X.rank != 1:
            require_column("sequence_softmax", X)
        return X

    def numpy(self, X: Array, X_lod: list[Array]) -> Array:
        lengths = np.diff(X_lod[0])
        starts = X_lod[0][np.flatnonzero(lengths)]
        lengths = lengths[lengths > 0]
        powers = np.exp(X - np.repeat(np.maximum.reduceat(X, starts, axis=0), lengths, axis=0))
        return powers / np.repeat(np.add.reduceat(powers, starts, axis=0), lengths, axis=0)

    def grad(self, X: Shape, X_lod: list[Array], Out: Array, d_Out: Array) -> dict[str, Array]:
        shares = segment_sums(Out * d_Out, X_lod[0])
        return {"X": Out * (d_Out - np.repeat(shares, np.diff(X_lod[0]), axis=0))}
