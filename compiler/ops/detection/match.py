"""Matching of prior boxes with ground-truth boxes, and their training targets.

Images are sequences of ground-truth boxes; priors are the same for all. No op has a gradient
except `sigmoid_focal_loss`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less, shapes_differ
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import check_indices
from compiler.ops.sequence.sequence import count_of
from compiler.ops.sequence.sequence_kernels import lod_on_device, owner_rows
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    require_same_shape,
    require_scalar,
    shown,
)

LEAST_MATCH = 1e-6
"""Values below this are no match."""


def match_best(distance: Array) -> Array:
    """Return the matching row of each column, or -1: largest entry first, each row once."""
    matches = np.full(distance.shape[1], -1, np.int32)
    left = distance.copy()
    for _ in range(min(distance.shape)):
        row, column = divmod(int(left.argmax()), distance.shape[1])
        if left[row, column] < LEAST_MATCH:
            break
        matches[column] = row
        left[row], left[:, column] = -1, -1
    return matches


def match_every(distance: Array, found: Array, threshold: float) -> Array:
    """Match each unmatched column to its largest row, if that entry reaches a threshold."""
    best = distance.argmax(axis=0)
    distances = distance.max(axis=0)
    free = (found < 0) & (distances >= max(threshold, LEAST_MATCH))
    return np.where(free, best, found).astype(np.int32)


class BipartiteMatch(OpDef, op="bipartite_match"):
    """The matching row of each column of DistMat, or -1, and the entry of the match, or 0.

    DistMat [rows, M] has a sequence of rows per image, or one image; both outputs are [N, M]. The
    largest entry is matched first, then the largest of the remaining rows and columns; with
    `match_type` per_prediction, unmatched columns take their largest row if it is at least
    `dist_threshold`. Reference: bipartite_match_op.cc.
    """

    no_kernel_reason = "pairs are matched sequentially, in descending order"

    DistMat = reads(no_grad=True)
    DistMat_lod = reads_lod("DistMat", optional=True)
    ColToRowMatchIndices = writes()
    ColToRowMatchDist = writes()
    lod_source = ""
    match_type = attr("bipartite")
    dist_threshold = attr(0.5)

    def infer(
        self, DistMat: TensorType, DistMat_lod: list[TensorType] | None
    ) -> dict[str, TensorType]:
        if DistMat.rank != 2:
            raise ShapeError(f"bipartite_match: DistMat is {DistMat}, expected [rows, columns]")
        if self.match_type not in ("bipartite", "per_prediction"):
            hint = "expected bipartite or per_prediction"
            raise BadAttribute(f"bipartite_match: match_type is {self.match_type!r}", hint=hint)
        images: Size = DistMat_lod[-1].shape[0] - 1 if DistMat_lod else 1
        distances = DistMat.with_shape((images, DistMat.shape[1]))
        return {
            "ColToRowMatchIndices": distances.with_dtype(DType.INT32),
            "ColToRowMatchDist": distances,
        }

    def numpy(self, DistMat: Array, DistMat_lod: list[Array] | None) -> dict[str, Array]:
        starts = DistMat_lod[-1] if DistMat_lod else np.array([0, len(DistMat)])
        shape = (len(starts) - 1, DistMat.shape[1])
        matches, distances = np.full(shape, -1, np.int32), np.zeros(shape, DistMat.dtype)
        for number in range(len(matches)):
            distance = DistMat[starts[number] : starts[number + 1]]
            if not len(distance):
                continue
            matched = match_best(distance)
            if self.match_type == "per_prediction":
                matched = match_every(distance, matched, self.dist_threshold)
            matches[number] = matched
            seen = distance[np.maximum(matched, 0), np.arange(shape[1])]
            distances[number] = np.where(matched < 0, 0, seen)
        return {"ColToRowMatchIndices": matches, "ColToRowMatchDist": distances}


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

    def infer(
        self,
        X: TensorType,
        X_lod: list[TensorType],
        MatchIndices: TensorType,
        NegIndices_lod: list[TensorType] | None,
    ) -> dict[str, TensorType]:
        if X.rank != 3 or MatchIndices.rank != 2:
            shapes = shown(X=X, MatchIndices=MatchIndices)
            raise ShapeError(f"target_assign: {shapes}, expected [rows, P, K] and [N, M]")
        require_dtype(self.kind, "MatchIndices", MatchIndices, DType.INT32)
        rows, negatives = MatchIndices.shape[0], NegIndices_lod[-1:] if NegIndices_lod else []
        if is_less(count_of(X_lod[-1]), rows) or any(differ(count_of(n), rows) for n in negatives):
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

    def check_values(
        self,
        k: SourceBuilder,
        X: Operand,
        X_lod: list[Operand],
        MatchIndices: Operand,
        NegIndices: Operand | None,
    ) -> None:
        k.line(f"{k.function(expect_rows_of)}({MatchIndices}, {X_lod[-1]}, {X.shape[0]})")
        if NegIndices is not None:
            priors = MatchIndices.shape[1]
            k.line(f"{k.function(check_indices)}({NegIndices}, {priors}, {self.kind!r})")

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_lod: list[Operand],
        MatchIndices: DeviceOperand,
        NegIndices: DeviceOperand | None,
        NegIndices_lod: list[Operand] | None,
        Out: DeviceOperand | None,
        OutWeight: DeviceOperand | None,
    ) -> None:
        starts = lod_on_device(k, X_lod[-1], X.shape[0])
        for result in (output for output in (Out, OutWeight) if output is not None):
            n, m, part = k.grid(*result.shape)
            match = MatchIndices[n, m]
            row, prior = match + starts[n], k.mod(m, k.size(X.shape[1]))
            if result is Out:
                matched = (match >= 0) & inside(k, row, X.shape[0])
                value = X.at(row, prior, part, where=matched, other=self.mismatch_value)
            else:
                value = k.where(match >= 0, 1.0, 0.0)
            k.store(result, (n, m, part), value)
        if NegIndices is not None and NegIndices_lod:
            rows = NegIndices.type.numel
            owners = owner_rows(k, NegIndices_lod[-1], rows)
            for result, value in ((Out, self.mismatch_value), (OutWeight, 1.0)):
                if result is not None:
                    i, part = k.grid(rows, result.shape[2])
                    prior = NegIndices.reshaped((rows,))[i]
                    matched = inside(k, prior, result.shape[1])
                    k.store(result, (owners[i], prior, part), value, matched)


class MineHardExamples(OpDef, op="mine_hard_examples"):
    """NegIndices = the unmatched priors with the largest loss, one sequence per image.

    ClsLoss and MatchDist are [N, M], MatchIndices int32 [N, M]. `max_negative` selects priors below
    `neg_dist_threshold`, `neg_pos_ratio` times the number of matched ones. `hard_example` selects
    `sample_size` of all, by the sum of both losses, and UpdatedMatchIndices drops the matches that
    are not selected. Indices are sorted. Reference: mine_hard_examples_op.cc.
    """

    no_kernel_reason = "the number of hard examples is data-dependent"

    ClsLoss = reads(no_grad=True)
    LocLoss = reads(optional=True, no_grad=True)
    MatchIndices = reads(no_grad=True)
    MatchDist = reads(no_grad=True)
    NegIndices = writes()
    NegIndices_lod = writes_lod("NegIndices")
    UpdatedMatchIndices = writes(shares_lod=False)
    neg_pos_ratio = attr(1.0)
    neg_dist_threshold = attr(0.5)
    sample_size = attr(0)
    mining_type = attr("max_negative")

    def infer(
        self, ClsLoss: TensorType, MatchIndices: TensorType, MatchDist: TensorType
    ) -> dict[str, object]:
        require_same_shape(self.kind, MatchIndices=MatchIndices, MatchDist=MatchDist)
        if differ(ClsLoss.shape[0], MatchIndices.shape[0]):
            actual = shown(ClsLoss=ClsLoss, MatchIndices=MatchIndices)
            raise ShapeError(f"mine_hard_examples: {actual}, expected equal batch sizes")
        if self.mining_type not in ("max_negative", "hard_example"):
            actual = f"mine_hard_examples: mining_type is {self.mining_type!r}"
            raise BadAttribute(actual, hint="expected max_negative or hard_example")
        return {
            "NegIndices": TensorType(DType.INT32, (UNKNOWN, 1)),
            "NegIndices_lod": [TensorType(DType.INT64, (MatchIndices.shape[0] + 1,))],
            "UpdatedMatchIndices": MatchIndices,
        }

    def numpy(
        self, ClsLoss: Array, LocLoss: Array | None, MatchIndices: Array, MatchDist: Array
    ) -> dict[str, object]:
        updated, hard = MatchIndices.copy(), self.mining_type == "hard_example"
        loss = ClsLoss.reshape(MatchIndices.shape)
        loss = loss + LocLoss.reshape(loss.shape) if hard and LocLoss is not None else loss
        mined: list[Array] = []
        for number, matches in enumerate(MatchIndices):
            valid = (matches < 0) & (MatchDist[number] < self.neg_dist_threshold)
            valid = np.ones(len(valid), np.bool_) if hard else valid
            positions = np.flatnonzero(valid)
            negatives = int((matches >= 0).sum() * self.neg_pos_ratio)
            count = min(self.sample_size if hard else negatives, len(positions))
            order = np.argsort(-loss[number][positions], kind="stable")[:count]
            chosen = np.sort(positions[order])
            if hard:
                updated[number, np.setdiff1d(positions, chosen)] = -1
                chosen = chosen[matches[chosen] < 0]
            mined.append(chosen)
        offsets = np.cumsum([0, *[len(rows) for rows in mined]], dtype=np.int64)
        indices = np.concatenate(mined).astype(np.int32)[:, None]
        return {
            "NegIndices": indices,
            "NegIndices_lod": [offsets],
            "UpdatedMatchIndices": updated,
        }


class SigmoidFocalLoss(OpDef, op="sigmoid_focal_loss"):
    """Out = the focal loss of each class: cross entropy, down-weighted for confident predictions.

    X [N, D] are logits of classes 1 to D, Label int32 [N, 1] the class, 0 for background, -1 for
    ignored rows. With p = sigmoid(X), the true class costs alpha (1-p)^gamma (-log p), another
    one (1-alpha) p^gamma (-log(1-p)), over max(FgNum, 1). Reference: sigmoid_focal_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    FgNum = reads(no_grad=True)
    Out = writes()
    gamma = attr(2.0, FINITE)
    alpha = attr(0.25, FINITE)

    def infer(self, X: TensorType, Label: TensorType, FgNum: TensorType) -> TensorType:
        require_dtype(self.kind, "Label", Label, DType.INT32)
        require_dtype(self.kind, "FgNum", FgNum, DType.INT32)
        require_scalar(self.kind, FgNum=FgNum)
        if X.rank != 2 or shapes_differ(Label, Label.with_shape((X.shape[0], 1))):
            shapes = shown(X=X, Label=Label)
            raise ShapeError(f"sigmoid_focal_loss: {shapes}, expected a label per row")
        return X

    def infer_grad(self, X: TensorType) -> dict[str, TensorType]:
        return {"X": X}

    def numpy(self, X: Array, Label: Array, FgNum: Array) -> Array:
        true, wrong = focal_weights(X, Label, FgNum, self.alpha)
        p, log_p, log_rest = focal_parts(X)
        loss = -true * (1 - p) ** self.gamma * log_p - wrong * p**self.gamma * log_rest
        return loss.astype(X.dtype)

    def grad(self, X: Array, Label: Array, FgNum: Array, d_Out: Array) -> dict[str, Array]:
        true, wrong = focal_weights(X, Label, FgNum, self.alpha)
        p, log_p, log_rest = focal_parts(X)
        rising = (1 - p) ** self.gamma * (1 - p - p * self.gamma * log_p)
        falling = p**self.gamma * (log_rest * (1 - p) * self.gamma - p)
        return {"X": (d_Out * (-true * rising - wrong * falling)).astype(X.dtype)}

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Label: DeviceOperand,
        FgNum: DeviceOperand,
        Out: DeviceOperand,
    ) -> None:
        at = k.grid(*X.shape)
        true, wrong = self.weights(k, Label, FgNum, at, X.type.dtype)
        p, log_p, log_rest = focal_terms(k, X[at])
        falling = k.power(p, self.gamma) * log_rest * wrong
        k.store(Out, at, -(k.power(1.0 - p, self.gamma) * log_p * true) - falling)

    def kernel_grad(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Label: DeviceOperand,
        FgNum: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        at = k.grid(*X.shape)
        true, wrong = self.weights(k, Label, FgNum, at, X.type.dtype)
        p, log_p, log_rest = focal_terms(k, X[at])
        rising = k.power(1.0 - p, self.gamma) * (1.0 - p - p * log_p * self.gamma)
        falling = k.power(p, self.gamma) * (log_rest * (1.0 - p) * self.gamma - p)
        k.store(d_X, at, -(d_Out[at] * (true * rising + wrong * falling)))

    def weights(
        self,
        k: KernelBuilder,
        Label: DeviceOperand,
        FgNum: DeviceOperand,
        at: Sequence[Number],
        dtype: DType,
    ) -> tuple[Number, Number]:
        """Return `focal_weights` of one element."""
        count, label = k.astype(k.maximum(FgNum.reshaped((1,))[0], 1), dtype), Label[at[0], 0]
        true = k.equal(label, at[1] + 1)
        wrong = k.where(true | k.equal(label, -1), 0.0, (1 - self.alpha) / count)
        return k.where(true, self.alpha / count, 0.0), wrong


def focal_terms(k: KernelBuilder, x: Number) -> tuple[Number, Number, Number]:
    """Return `focal_parts` of one element."""
    p = 1.0 / (1.0 + k.exp(-x))
    rest = -k.maximum(x, 0.0) - k.log1p(k.exp(-k.absolute(x)))
    return p, k.log(k.maximum(p, float(np.finfo(np.float32).tiny))), rest


def focal_weights(X: Array, Label: Array, FgNum: Array, alpha: float) -> tuple[Array, Array]:
    """Return the weights of the true class of each row, and of the others: [N, D]."""
    count, labels = max(int(FgNum.reshape(-1)[0]), 1), Label.reshape(-1, 1)
    true: Array = labels == np.arange(1, int(X.shape[1]) + 1)
    return true * (alpha / count), (~true & (labels != -1)) * ((1 - alpha) / count)


def focal_parts(X: Array) -> tuple[Array, Array, Array]:
    """Return p = sigmoid(X), log(p), and log(1 - p), all finite."""
    p = 1 / (1 + np.exp(-X))
    rest = -np.maximum(X, 0) - np.log1p(np.exp(-np.abs(X)))
    return p, np.log(np.maximum(p, np.finfo(np.float32).tiny)), rest
