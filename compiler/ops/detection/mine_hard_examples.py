"""Selection of the hardest negative examples among prior boxes."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes, writes_lod
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.nms_numpy import smallest_first
from compiler.ops.type_checks import (
    differ,
    require_same_shape,
    shown,
)


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

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        MatchIndices = s.MatchIndices
        require_same_shape(self.kind, MatchIndices=MatchIndices, MatchDist=s.MatchDist)
        if differ(s.ClsLoss.shape[0], MatchIndices.shape[0]):
            actual = shown(ClsLoss=s.ClsLoss, MatchIndices=MatchIndices)
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
            order = smallest_first(-loss[number][positions], count)
            chosen = np.sort(positions[order])
            if hard:
                updated[number, np.setdiff1d(positions, chosen)] = -1
                chosen = chosen[matches[chosen] < 0]
            mined.append(chosen)
        offsets = np.cumsum([0, *[len(rows) for rows in mined]], dtype=np.int64)
        indices = np.concatenate([np.empty(0, np.int32), *mined]).astype(np.int32)[:, None]
        return {
            "NegIndices": indices,
            "NegIndices_lod": [offsets],
            "UpdatedMatchIndices": updated,
        }
