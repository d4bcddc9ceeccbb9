"""Area under the ROC curve of a binary classifier, from histograms of scores."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import differ, require_dtype, shown


def area_under(positive: Array, negative: Array) -> float:
    """Return the fraction of (positive, negative) pairs in which the positive scores higher.

    Both are histograms by ascending score; ties count half.

    >>> area_under(np.array([0, 1, 2]), np.array([2, 0, 1]))
    0.7777777777777778
    """
    above = np.cumsum(positive[::-1])
    area = float(negative[::-1] @ (above - 0.5 * positive[::-1]))
    positives, negatives = int(above[-1]), int(negative.sum())
    return area / positives / negatives if positives > 0 and negatives > 0 else area


def add_to_window(counts: Array, fresh: Array, steps: int) -> Array:
    """Add a batch's histogram to a sliding window of `steps` batches, in place; return their sum.

    `counts` holds a line per batch, a line for the sum, and the number of batches so far.
    """
    lines, line = counts[:-1].reshape(steps + 1, -1), int(counts[-1]) % steps
    lines[steps] += fresh - lines[line]
    lines[line] = fresh
    counts[-1] += 1
    return lines[steps]


def count_area(
    Predict: Array, Label: Array, positive: Array, negative: Array, thresholds: int, steps: int
) -> float:
    """Add the batch to the histograms, in place, and return the area under the ROC curve.

    Generated modules copy this function. Raises ValueError for a score that is not a probability.
    """
    scores, labels = Predict[:, -1], Label.reshape(-1)
    if not ((scores >= 0) & (scores <= 1)).all():
        wrong = scores[~((scores >= 0) & (scores <= 1))][0]
        raise ValueError(f"auc: Predict has {wrong}, expected probabilities from 0 to 1")
    bins = (scores * thresholds).astype(np.int64)
    size = (steps + 1) * (thresholds + 1) + (steps > 0)
    totals: list[Array] = []
    for state, of in ((positive, labels > 0), (negative, labels == 0)):
        counts, fresh = state.reshape(-1)[:size], np.bincount(bins[of], minlength=thresholds + 1)
        if steps:
            totals.append(add_to_window(counts, fresh, steps))
        else:
            counts += fresh
            totals.append(counts)
    return area_under(totals[0], totals[1])


class Auc(OpDef, op="auc"):
    """AUC [1] float64 = the area under the ROC curve of Predict against Label.

    Predict is [rows, 2], the probability of class 1 last, or [rows, 1]; a Label is 0 or above.
    StatPos and StatNeg count scores in `num_thresholds` + 1 bins, in place: of all batches so far
    [1, bins], or with `slide_steps` s of the last s: [(s + 1) * bins + 1]; elements after these
    are not used. `curve` has no effect, as in the reference: auc_op.h.
    """

    no_kernel_reason = "its histograms are small and updated once per step"

    Predict = reads()
    Label = reads()
    StatPos = reads()
    StatNeg = reads()
    AUC = writes()
    StatPosOut = writes(inplace="StatPos")
    StatNegOut = writes(inplace="StatNeg")
    curve = attr("ROC")
    num_thresholds = attr(8191)
    slide_steps = attr(1)

    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Predict, Label = s.Predict, s.Label
        require_dtype("auc", "Label", Label, DType.INT64)
        width = Predict.shape[-1] if Predict.rank == 2 else 0
        odd = isinstance(width, int) and width not in (1, 2)
        if odd or differ(Predict.shape[0], Label.numel):
            shapes = shown(Predict=Predict, Label=Label)
            raise ShapeError(f"auc: {shapes}, expected [rows, 2] or [rows, 1], and a label per row")
        bins = self.num_thresholds + 1
        count = (self.slide_steps + 1) * bins + 1 if self.slide_steps else bins
        for slot, counts in (("StatPos", s.StatPos), ("StatNeg", s.StatNeg)):
            require_dtype("auc", slot, counts, DType.INT64)
            is_larger = isinstance(counts.numel, int) and counts.numel > count
            if not is_larger and differ(counts.numel, count):
                raise ShapeError(f"auc: {slot} is {counts}, expected {count} elements")
        return {
            "AUC": TensorType(DType.FP64, (1,)),
            "StatPosOut": s.StatPos,
            "StatNegOut": s.StatNeg,
        }

    def numpy(
        self, Predict: Array, Label: Array, StatPos: Array, StatNeg: Array
    ) -> dict[str, Array]:
        positive, negative = StatPos.copy(), StatNeg.copy()
        settings = self.num_thresholds, self.slide_steps
        area = count_area(Predict, Label, positive, negative, *settings)
        return {"AUC": np.array([area]), "StatPosOut": positive, "StatNegOut": negative}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Predict, Label = s.Predict, s.Label
        AUC = s.get("AUC")
        counts: list[Operand] = []
        for before, after in ((s.StatPos, s.get("StatPosOut")), (s.StatNeg, s.get("StatNegOut"))):
            counts.append(after or k.scratch(before.shape, before.type.dtype))
            if not k.aliased(before, counts[-1]):
                k.line(f"np.copyto({counts[-1]}, {before})")
        arguments = f"{Predict}, {Label}, {counts[0]}, {counts[1]}"
        area = f"{k.function(count_area)}({arguments}, {self.num_thresholds}, {self.slide_steps})"
        k.line(area if AUC is None else f"{AUC}.fill({area})")
