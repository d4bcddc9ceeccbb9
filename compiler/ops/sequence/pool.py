"""Ops over whole sequences: pooling, and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import check_optional_indices
from compiler.ops.sequence import pool_kernels
from compiler.ops.sequence.offsets import (
    count_of,
    lod_expression,
    owners,
    require_column,
    segment_sums,
    segments,
)
from compiler.ops.sequence.sequence_kernels import softmax_rows, softmax_rows_grad

POOLS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")
"""Sums may be divided by the length (AVERAGE) or by its root (SQRT)."""


def matrix(values: Array) -> Array:
    """A view as [rows, elements per row]."""
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def pool_sums(X: Array, parts: tuple[Any, Array, Array], empty: float, Out: Array) -> None:
    """Sum each sequence into Out; `parts` are its `segments`."""
    filled, starts, _ = parts
    if isinstance(filled, slice):
        np.add.reduceat(X, starts, axis=0, out=Out)
    else:
        Out.fill(empty)
        Out[filled] = np.add.reduceat(X, starts, axis=0)


def pool_ends(
    X: Array, parts: tuple[Any, Array, Array], kind: str, empty: float, Out: Array
) -> None:
    """Copy the FIRST or the LAST row of each sequence to Out."""
    filled, starts, lengths = parts
    Out.fill(empty)
    Out[filled] = X[starts if kind == "FIRST" else starts + lengths - 1]


def pool_largest(X: Array, parts: tuple[Any, Array, Array], empty: float, Out: Array) -> None:
    """Compute the maximum of each sequence, per column, into Out."""
    filled, starts, _ = parts
    Out.fill(empty)
    Out[filled] = np.maximum.reduceat(X, starts, axis=0)


def locate_largest(X: Array, parts: tuple[Any, Array, Array], Out: Array, MaxIndex: Array) -> None:
    """Write the row of each maximum to MaxIndex: the first on ties, -1 for empty sequences.

    X and Out are matrices. A NaN, which equals nothing, is reported at the last row of X.
    """
    filled, starts, lengths = parts
    MaxIndex.fill(-1)
    equal = np.equal(X, Out[filled].repeat(lengths, axis=0))
    rows = np.where(equal, np.arange(len(X))[:, None], len(X) - 1)
    MaxIndex[filled] = np.minimum.reduceat(rows, starts, axis=0)


def pool_weights(offsets: Array, kind: str, rank: int) -> Array:
    """The factor of each sequence's sum: [count, 1, …], 1 for empty ones."""
    lengths = np.maximum(offsets[1:] - offsets[:-1], 1).reshape(-1, *(1,) * (rank - 1))
    return 1.0 / (lengths if kind == "AVERAGE" else np.sqrt(lengths))


def give_to_largest(
    MaxIndex: Array, parts: tuple[Any, Array, Array], d_Out: Array, d_X: Array
) -> None:
    """Scatter d_Out to the rows of the maxima in d_X, 0 elsewhere; all are matrices."""
    filled, width = parts[0], int(d_X.shape[1])
    places = MaxIndex[filled].astype(np.int64) * width + np.arange(width)
    d_X.fill(0.0)
    d_X.reshape(-1)[places] = d_Out[filled]


def give_to_ends(parts: tuple[Any, Array, Array], kind: str, d_Out: Array, d_X: Array) -> None:
    """Scatter d_Out to the FIRST or the LAST row of each sequence in d_X, 0 elsewhere."""
    filled, starts, lengths = parts
    d_X.fill(0.0)
    d_X[starts if kind == "FIRST" else starts + lengths - 1] = d_Out[filled]


class SequencePool(OpDef, op="sequence_pool"):
    """Out[i] = the sum, mean, maximum, first or last row of sequence i of X.

    X is [rows, …], Out [count, …], and `pad_value` is the result for an empty sequence. Sequences
    are those of the innermost LoD level; Out has the outer levels. MaxIndex, of Out's shape,
    has the rows of the maxima (MAX), and -1 elsewhere. Reference: sequence_pool_op.h.
    """

    lod_source = ""
    derives_offsets = True

    X = reads()
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    MaxIndex = writes(optional=True)
    pooltype = attr("AVERAGE")
    pad_value = attr(0.0)
    is_test = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X_lod = s.all("X_lod")
        if self.pooltype not in POOLS:
            expected = ", ".join(POOLS)
            raise BadAttribute(f"sequence_pool: 'pooltype' is {self.pooltype!r}, not {expected}")
        Out = s.X.with_shape((count_of(X_lod[-1]), *s.X.shape[1:]))
        return {"Out": Out, "MaxIndex": Out.with_dtype(DType.INT32), "Out_lod": X_lod[:-1]}

    def numpy(self, X: Array, X_lod: list[Array]) -> dict[str, object]:
        offsets, parts = X_lod[-1], segments(X_lod[-1])
        Out = np.empty((len(offsets) - 1, *X.shape[1:]), X.dtype)
        MaxIndex = np.full(Out.shape, -1, np.int32)
        if self.pooltype == "MAX":
            pool_largest(X, parts, self.pad_value, Out)
            locate_largest(matrix(X), parts, matrix(Out), matrix(MaxIndex))
        elif self.pooltype in ("FIRST", "LAST"):
            pool_ends(X, parts, self.pooltype, self.pad_value, Out)
        else:
            pool_sums(X, parts, self.pad_value, Out)
        if self.pooltype in ("AVERAGE", "SQRT"):
            Out *= pool_weights(offsets, self.pooltype, X.ndim).astype(X.dtype)
        return {"Out": Out, "MaxIndex": MaxIndex, "Out_lod": X_lod[:-1]}

    def grad(
        self, X: Shape, X_lod: list[Array], MaxIndex: Array | None, d_Out: Array
    ) -> dict[str, Array]:
        offsets, parts = X_lod[-1], segments(X_lod[-1])
        if self.pooltype in ("AVERAGE", "SQRT"):
            d_Out = d_Out * pool_weights(offsets, self.pooltype, d_Out.ndim).astype(d_Out.dtype)
        if self.pooltype in ("SUM", "AVERAGE", "SQRT"):
            return {"X": d_Out.take(owners(offsets), axis=0)}
        d_X = np.empty((int(offsets[-1]), *d_Out.shape[1:]), d_Out.dtype)
        if self.pooltype == "MAX" and MaxIndex is not None:
            give_to_largest(matrix(MaxIndex), parts, matrix(d_Out), matrix(d_X))
        else:
            give_to_ends(parts, self.pooltype, d_Out, d_X)
        return {"X": d_X}

    def lower_parts(self, k: SourceBuilder, offsets: Operand) -> str:
        """An expression for the segments."""
        return lod_expression(k, f"{k.function(segments)}({offsets})", offsets, "segments")

    def lower_weights(self, k: SourceBuilder, offsets: Operand, like: Operand) -> str:
        """An expression for the factors of the sums."""
        factors = f"{k.function(pool_weights)}({offsets}, {self.pooltype!r}, {like.type.rank})"
        cast_factors = f"{factors}.astype({like.type.dtype.numpy.name!r})"
        return lod_expression(k, cast_factors, offsets, "weights")

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        X_lod = s.all("X_lod")
        offsets, parts = X_lod[-1], self.lower_parts(k, X_lod[-1])
        pooled = s.get("Out") or k.scratch((count_of(offsets.type), *X.shape[1:]), X.type.dtype)
        empty = f"{self.pad_value!r}, {pooled}"
        if self.pooltype == "MAX":
            k.line(f"{k.function(pool_largest)}({X}, {parts}, {empty})")
        elif self.pooltype in ("FIRST", "LAST"):
            k.line(f"{k.function(pool_ends)}({X}, {parts}, {self.pooltype!r}, {empty})")
        else:
            k.line(f"{k.function(pool_sums)}({X}, {parts}, {empty})")
        if self.pooltype in ("AVERAGE", "SQRT"):
            weights = self.lower_weights(k, offsets, pooled)
            k.line(f"np.multiply({pooled}, {weights}, out={pooled})")
        for outer, level in zip(s.all("Out_lod"), X_lod, strict=False):
            k.line(f"np.copyto({outer}, {level})")
        if (MaxIndex := s.get("MaxIndex")) is not None:
            self.lower_located(k, X, parts, pooled, MaxIndex)

    def lower_located(
        self, k: SourceBuilder, X: Operand, parts: str, pooled: Operand, MaxIndex: Operand
    ) -> None:
        """Lower the rows of the maxima; -1 for other pools."""
        if self.pooltype != "MAX":
            k.line(f"{MaxIndex}.fill(-1)")
            return
        flat = pooled.shape[0], product(pooled.shape[1:])
        seen = f"{X.view((X.shape[0], flat[1]))}, {parts}"
        outputs = f"{pooled.view(flat)}, {MaxIndex.view(flat)}"
        k.line(f"{k.function(locate_largest)}({seen}, {outputs})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        MaxIndex = s.get("MaxIndex")
        offsets, flat = s.all("X_lod")[-1], (d_Out.shape[0], product(d_Out.shape[1:]))
        if self.pooltype in ("SUM", "AVERAGE", "SQRT"):
            self.lower_shares(k, offsets, d_Out, d_X)
        elif MaxIndex is not None and self.pooltype == "MAX":
            above = f"{d_Out.view(flat)}, {d_X.view((d_X.shape[0], flat[1]))}"
            parts = self.lower_parts(k, offsets)
            k.line(f"{k.function(give_to_largest)}({MaxIndex.view(flat)}, {parts}, {above})")
        else:
            arguments = f"{self.lower_parts(k, offsets)}, {self.pooltype!r}, {d_Out}, {d_X}"
            k.line(f"{k.function(give_to_ends)}({arguments})")

    def lower_shares(
        self, k: SourceBuilder, offsets: Operand, d_Out: Operand, d_X: Operand
    ) -> None:
        """Lower the gradient of a sum: every row of a sequence gets the same."""
        share = d_Out
        if self.pooltype != "SUM":
            share = k.scratch(d_Out.shape, d_Out.type.dtype)
            weights = self.lower_weights(k, offsets, d_Out)
            k.line(f"np.multiply({d_Out}, {weights}, out={share})")
        rows = lod_expression(k, f"{k.function(owners)}({offsets})", offsets, "owners")
        k.line(f"{share}.take({rows}, axis=0, out={d_X}, mode='clip')")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X_lod = s.host.all("X_lod")
        for outer, level in zip(s.host.all("Out_lod"), X_lod, strict=False):
            k.write_host(outer, level)
        pool_kernels.pooled(
            k, s.X, X_lod[-1], self.pooltype, self.pad_value, s.get("Out"), s.get("MaxIndex")
        )

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        if self.pooltype == "MAX":
            check, rows = k.function(check_optional_indices), s.X.shape[0]
            k.line(f"{check}({s.MaxIndex}, {rows}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        pool_kernels.pooled_grad(
            k, s.host.all("X_lod")[-1], self.pooltype, s.get("MaxIndex"), s.d_Out, s.d_X
        )


class SequenceSoftmax(OpDef, op="sequence_softmax"):
    """Softmax over each sequence: Out = exp(X) / sum(exp(X)); X is [rows] or [rows, 1].

    Sequences are those of the innermost LoD level. Reference: sequence_softmax_op.h.
    """

    X = reads()
    X_lod = reads_lod("X")
    Out = writes()
    data_format = attr("AnyLayout")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if X.rank != 1:
            require_column("sequence_softmax", X)
        return X

    def numpy(self, X: Array, X_lod: list[Array]) -> Array:
        _, starts, lengths = segments(X_lod[-1])
        powers = np.exp(X - np.maximum.reduceat(X, starts, axis=0).repeat(lengths, axis=0))
        return powers / np.add.reduceat(powers, starts, axis=0).repeat(lengths, axis=0)

    def grad(self, X: Shape, X_lod: list[Array], Out: Array, d_Out: Array) -> dict[str, Array]:
        shares = segment_sums(Out * d_Out, X_lod[-1])
        return {"X": Out * (d_Out - shares.take(owners(X_lod[-1]), axis=0))}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        softmax_rows(k, s.X, s.host.all("X_lod")[-1], s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        softmax_rows_grad(k, s.Out, s.d_Out, s.host.all("X_lod")[-1], s.d_X)
