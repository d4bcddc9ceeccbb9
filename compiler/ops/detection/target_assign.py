"""Training targets of prior boxes from their matches with ground-truth boxes."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import check_indices
from compiler.ops.sequence.offsets import count_of
from compiler.ops.sequence.sequence_kernels import lod_on_device, owner_rows
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    shown,
)


def expect_rows_of(matches: Array, starts: Array, rows: int) -> None:
    """Raise ValueError if a match, a row of its image, is not one of the rows of all images."""
    matched = np.where(matches >= 0, matches + starts[: len(matches), None], 0)
    if rows and matched.max(initial=0) >= rows:
        wrong = matches[matched >= rows][0]
        raise ValueError(f"target_assign: match {wrong} is out of range, there are {rows} rows")


class TargetAssign(OpDef, op="target_assign"):
    """Out[n, m] = the row of X that prior m of image n is matched to, OutWeight 1; otherwise 0.

    X is [rows, P, K] in one sequence per image, P 1 or the number of priors; MatchIndices int32 [N,
    M]. Without a match Out is `mismatch_value`, and so it is, with weight 1, for the priors that
    NegIndices int32 [total, 1] lists for each image. Reference: target_assign_op.h.
    """

    X = reads(no_grad=True)
    X_lod = reads_lod("X")
    MatchIndices = reads(no_grad=True)
    NegIndices = reads(optional=True, no_grad=True)
    NegIndices_lod = reads_lod("NegIndices", optional=True)
    Out = writes()
    OutWeight = writes()
    lod_source = ""
    mismatch_value = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, MatchIndices = s.X, s.MatchIndices
        NegIndices_lod = s.all("NegIndices_lod")
        if X.rank != 3 or MatchIndices.rank != 2:
            shapes = shown(X=X, MatchIndices=MatchIndices)
            raise ShapeError(f"target_assign: {shapes}, expected [rows, P, K] and [N, M]")
        require_dtype(self.kind, "MatchIndices", MatchIndices, DType.INT32)
        rows, negatives = MatchIndices.shape[0], NegIndices_lod[-1:] if NegIndices_lod else []
        if is_less(count_of(s.all("X_lod")[-1]), rows) or any(
            differ(count_of(n), rows) for n in negatives
        ):
            expected = "expected a sequence of X, and of NegIndices, for each row"
            raise ShapeError(f"target_assign: MatchIndices is {MatchIndices}, {expected}")
        out = X.with_shape((*MatchIndices.shape, X.shape[2]))
        weight = TensorType(DType.FP32, (*MatchIndices.shape, 1))
        return {"Out": out, "OutWeight": weight}

    def numpy(
        self,
        X: Array,
        X_lod: list[Array],
        MatchIndices: Array,
        NegIndices: Array | None,
        NegIndices_lod: list[Array] | None,
    ) -> dict[str, Array]:
        images, priors = (int(size) for size in MatchIndices.shape)
        starts = X_lod[-1]
        expect_rows_of(MatchIndices, starts, len(X))
        matched = MatchIndices >= 0
        rows = np.where(matched, MatchIndices + starts[:images, None], 0)
        columns = np.broadcast_to(np.arange(priors) % X.shape[1], rows.shape)
        weight = matched.astype(np.float32)[..., None]
        blank = np.full((images, priors, X.shape[2]), self.mismatch_value, X.dtype)
        out = np.where(matched[..., None], X[rows, columns], blank) if len(X) else blank
        if NegIndices is not None and NegIndices_lod:
            number = np.repeat(np.arange(images), np.diff(NegIndices_lod[-1]))
            chosen = NegIndices.reshape(-1)
            check_indices(chosen, priors, "target_assign")
            out[number, chosen], weight[number, chosen] = self.mismatch_value, 1
        return {"Out": out, "OutWeight": weight}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, MatchIndices = s.X, s.MatchIndices
        X_lod, NegIndices = s.all("X_lod"), s.get("NegIndices")
        k.line(f"{k.function(expect_rows_of)}({MatchIndices}, {X_lod[-1]}, {X.shape[0]})")
        if NegIndices is not None:
            priors = MatchIndices.shape[1]
            k.line(f"{k.function(check_indices)}({NegIndices}, {priors}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        NegIndices_lod, Out = s.host.all("NegIndices_lod"), s.get("Out")
        OutWeight = s.get("OutWeight")
        starts = lod_on_device(k, s.host.all("X_lod")[-1], X.shape[0])
        for result in (output for output in (Out, OutWeight) if output is not None):
            n, m, part = k.grid(*result.shape)
            match = s.MatchIndices[n, m]
            row, prior = match + starts[n], k.mod(m, k.size(X.shape[1]))
            if result is Out:
                matched = (match >= 0) & inside(k, row, X.shape[0])
                value = X.at(row, prior, part, where=matched, other=self.mismatch_value)
            else:
                value = k.where(match >= 0, 1.0, 0.0)
            k.store(result, (n, m, part), value)
        if (NegIndices := s.get("NegIndices")) is not None and NegIndices_lod:
            rows = NegIndices.type.numel
            owners = owner_rows(k, NegIndices_lod[-1], rows)
            for result, value in ((Out, self.mismatch_value), (OutWeight, 1.0)):
                if result is not None:
                    i, part = k.grid(rows, result.shape[2])
                    prior = NegIndices.reshaped((rows,))[i]
                    matched = inside(k, prior, result.shape[1])
                    k.store(result, (owners[i], prior, part), value, matched)
