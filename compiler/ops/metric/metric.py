"""Classification metrics: accuracy, mean IoU, precision and recall, ranking pairs."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Operand, SourceBuilder
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import (
    require_dtype,
    require_same_dtype,
    require_same_shape,
    require_scalar,
)


class Accuracy(OpDef, op="accuracy"):
    """Accuracy = Correct / Total: the fraction of rows whose Label is among the row's Indices.

    Out and Indices are those of `top_k`; Label is [rows, 1]. Accuracy is float32, Correct and Total
    int32, each of shape [1]. Reference: accuracy_op.h.
    """

    Out = reads(shape_only=True)
    Indices = reads()
    Label = reads()
    Accuracy = writes()
    Correct = writes()
    Total = writes()

    def infer(self, Indices: TensorType, Label: TensorType) -> dict[str, TensorType]:
        require_dtype("accuracy", "Indices", Indices, DType.INT64)
        require_dtype("accuracy", "Label", Label, DType.INT64)
        rows = Indices.with_shape((*Indices.shape[:1], 1))
        require_same_shape("accuracy", rows=rows, Label=Label)
        if is_less(Indices.shape[-1], 1):
            raise ShapeError(f"accuracy: Indices is {Indices}, expected one or more for each row")
        count = TensorType(DType.INT32, (1,))
        return {"Accuracy": TensorType(DType.FP32, (1,)), "Correct": count, "Total": count}

    def numpy(self, Indices: Array, Label: Array) -> dict[str, Array]:
        correct = np.count_nonzero((Indices == Label).any(axis=1))
        return {
            "Accuracy": np.array([correct / len(Label)], np.float32),
            "Correct": np.array([correct], np.int32),
            "Total": np.array([len(Label)], np.int32),
        }

    def lower(
        self,
        k: SourceBuilder,
        Indices: Operand,
        Label: Operand,
        Accuracy: Operand | None,
        Correct: Operand | None,
        Total: Operand | None,
    ) -> None:
        rows, hits = product(Label.shape), k.scratch(Indices.shape, DType.BOOL)
        k.line(f"np.equal({Indices}, {Label}, out={hits})")
        best = Indices.shape[-1] == 1
        count = f"np.count_nonzero({hits if best else f'np.any({hits}, axis=1)'})"
        if Accuracy is not None:
            k.line(f"{Accuracy}.fill({count} / ({rows}))")
        if Correct is not None:
            k.line(f"{Correct}.fill({count})")
        if Total is not None:
            k.line(f"{Total}.fill({rows})")

    def kernel(
        self,
        k: KernelBuilder,
        Indices: DeviceOperand,
        Label: DeviceOperand,
        Accuracy: DeviceOperand | None,
        Correct: DeviceOperand | None,
        Total: DeviceOperand | None,
    ) -> None:
        hits = k.scratch(Indices.shape[:1], DType.INT32)
        (row,) = k.grid(Indices.shape[0])
        r = k.loop(Indices.shape[1])
        hit = k.equal(Indices[row, r], Label[row, 0])
        k.store(hits, (row,), k.max(k.astype(hit, DType.INT32), r))
        (one,) = k.grid(1)
        r = k.loop(Indices.shape[0])
        count = k.sum(hits[r], r)
        rows = k.size(Label.type.numel)
        if Accuracy is not None:
            k.store(Accuracy, (one,), k.astype(count, DType.FP32) / k.astype(rows, DType.FP32))
        if Correct is not None:
            k.store(Correct, (one,), count)
        if Total is not None:
            k.store(Total, (one,), rows)


def checked_classes(classes: Array, slot: str, count: int) -> Array:
    """Return the classes flattened; raise ValueError for one not in [0, count)."""
    flat = classes.reshape(-1)
    wrong = (flat < 0) | (flat >= count)
    if wrong.any():
        raise ValueError(f"{slot} has {flat[wrong][0]}, expected classes from 0 to {count - 1}")
    return flat


class MeanIou(OpDef, op="mean_iou"):
    """OutMeanIou [1] = the mean over classes of intersection / union of predictions and labels.

    OutCorrect counts correct predictions by class, OutWrong each wrong one for both its classes:
    int32 [num_classes]. InWrongs and InCorrects are added to the counts, InMeanIou to the result.
    Classes that do not occur are omitted. Reference: mean_iou_op.h.
    """

    Predictions = reads()
    Labels = reads()
    InWrongs = reads(many=True, optional=True)
    InCorrects = reads(many=True, optional=True)
    InMeanIou = reads(many=True, optional=True)
    OutMeanIou = writes()
    OutWrong = writes()
    OutCorrect = writes()
    num_classes = required(int)

    lod_source = ""

    def infer(
        self,
        Predictions: TensorType,
        Labels: TensorType,
        InWrongs: list[TensorType] | None,
        InCorrects: list[TensorType] | None,
        InMeanIou: list[TensorType] | None,
    ) -> dict[str, TensorType]:
        require_dtype(self.kind, "Predictions", Predictions, DType.INT32, DType.INT64)
        require_same_dtype(self.kind, Predictions=Predictions, Labels=Labels)
        require_same_shape(self.kind, Predictions=Predictions, Labels=Labels)
        counts = TensorType(DType.INT32, (self.num_classes,))
        for slot, sums in (("InWrongs", InWrongs), ("InCorrects", InCorrects)):
            for tensor_type in sums or []:
                require_same_shape(self.kind, **{slot: tensor_type, "counts": counts})
        for tensor_type in InMeanIou or []:
            require_scalar(self.kind, InMeanIou=tensor_type)
        mean = TensorType(DType.FP32, (1,))
        return {"OutMeanIou": mean, "OutWrong": counts, "OutCorrect": counts}

    def numpy(
        self,
        Predictions: Array,
        Labels: Array,
        InWrongs: list[Array] | None,
        InCorrects: list[Array] | None,
        InMeanIou: list[Array] | None,
    ) -> dict[str, Array]:
        count = self.num_classes
        claimed = checked_classes(Predictions, "Predictions", count)
        true = checked_classes(Labels, "Labels", count)
        right = claimed == true
        correct = np.bincount(true[right], minlength=count)
        wrong = np.bincount(np.concatenate([true[~right], claimed[~right]]), minlength=count)
        wrong = (wrong + sum(InWrongs or [])).astype(np.int32)
        correct = (correct + sum(InCorrects or [])).astype(np.int32)
        every = wrong + correct
        mean = (correct / np.maximum(every, 1)).sum() / max(np.count_nonzero(every), 1)
        total = np.array([mean], np.float32) + sum(InMeanIou or [])
        return {"OutMeanIou": total, "OutWrong": wrong, "OutCorrect": correct}

    def check_values(self, k: SourceBuilder, Predictions: Operand, Labels: Operand) -> None:
        check = k.function(checked_classes)
        k.line(f"{check}({Predictions}, 'Predictions', {self.num_classes})")
        k.line(f"{check}({Labels}, 'Labels', {self.num_classes})")

    def kernel(
        self,
        k: KernelBuilder,
        Predictions: DeviceOperand,
        Labels: DeviceOperand,
        InWrongs: list[DeviceOperand] | None,
        InCorrects: list[DeviceOperand] | None,
        InMeanIou: list[DeviceOperand] | None,
        OutMeanIou: DeviceOperand | None,
        OutWrong: DeviceOperand | None,
        OutCorrect: DeviceOperand | None,
    ) -> None:
        classes, count = self.num_classes, Labels.type.numel
        wrong, correct = (
            output or k.scratch((classes,), DType.INT32) for output in (OutWrong, OutCorrect)
        )
        (c,) = k.grid(classes)
        r = k.loop(count)
        predicted, true = (
            k.equal(operand.reshaped((count,))[r], c) for operand in (Predictions, Labels)
        )
        for out, flags, before in (
            (wrong, k.logical_xor(predicted, true), InWrongs),
            (correct, predicted & true, InCorrects),
        ):
            total = k.sum(k.astype(flags, DType.INT32), r)
            for operand in before or []:
                total = total + operand[c]
            k.store(out, (c,), total)
        if OutMeanIou is None:
            return
        (one,) = k.grid(1)
        r = k.loop(classes)
        right, every = correct[r], correct[r] + wrong[r]
        share = k.astype(right, DType.FP64) / k.astype(k.maximum(every, 1), DType.FP64)
        there = k.sum(k.astype(k.not_equal(every, 0), DType.INT32), r)
        mean = k.sum(share, r) / k.astype(k.maximum(there, 1), DType.FP64)
        for operand in InMeanIou or []:
            mean = mean + operand[0]
        k.store(OutMeanIou, (one,), mean)


def ratio(part: Array, rest: Array) -> Array:
    """Return part / (part + rest), and 1 where both are 0."""
    whole = part + rest
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 1.0)


def precision_recall_f1(states: Array) -> Array:
    """Return precision, recall and F1, macro-averaged, then micro-averaged: [6] float64.

    `states` [classes, 4] has true positives, false positives, true negatives, false negatives.
    """
    metrics = np.empty(6)
    total = states.sum(0, keepdims=True)
    for start, counts in ((0, states), (3, total)):
        precision = ratio(counts[:, 0], counts[:, 1]).mean()
        recall = ratio(counts[:, 0], counts[:, 3]).mean()
        both = precision + recall
        score = 2 * precision * recall / both if both > 0 else 0.0
        metrics[start : start + 3] = precision, recall, score
    return metrics


class PrecisionRecall(OpDef, op="precision_recall"):
    """Precision, recall and F1 of predicted classes, for the batch and accumulated with StatesInfo.

    Metrics are [6] float64: macro-averaged, then micro-averaged. States are [class_number, 4]
    float32: true positives, false positives, true negatives, false negatives, each row counted
    with its weight. Indices and Labels are int32 [rows, 1]. Reference: precision_recall_op.h.
    """

    no_kernel_reason = "its states are a few numbers per class"

    MaxProbs = reads(shape_only=True)
    Indices = reads()
    Labels = reads()
    Weights = reads(optional=True)
    StatesInfo = reads(optional=True)
    BatchMetrics = writes()
    AccumMetrics = writes()
    AccumStatesInfo = writes()
    class_number = required(int)

    lod_source = ""

    def infer(self, Indices: TensorType, Labels: TensorType) -> dict[str, TensorType]:
        require_dtype(self.kind, "Indices", Indices, DType.INT32)
        require_dtype(self.kind, "Labels", Labels, DType.INT32)
        require_same_shape(self.kind, Indices=Indices, Labels=Labels)
        metrics = TensorType(DType.FP64, (6,))
        states = TensorType(DType.FP32, (self.class_number, 4))
        return {"BatchMetrics": metrics, "AccumMetrics": metrics, "AccumStatesInfo": states}

    def numpy(
        self, Indices: Array, Labels: Array, Weights: Array | None, StatesInfo: Array | None
    ) -> dict[str, Array]:
        count = self.class_number
        guessed = checked_classes(Indices, "Indices", count)
        true = checked_classes(Labels, "Labels", count)
        weights = np.ones(true.size) if Weights is None else Weights.reshape(-1)
        right = guessed == true
        hits = np.bincount(true, weights * right, count)
        false = np.bincount(guessed, weights * ~right, count)
        missed = np.bincount(true, weights * ~right, count)
        batch = np.stack([hits, false, weights.sum() - hits - false - missed, missed], axis=1)
        states = batch if StatesInfo is None else batch + StatesInfo
        return {
            "BatchMetrics": precision_recall_f1(batch),
            "AccumMetrics": precision_recall_f1(states),
            "AccumStatesInfo": states.astype(np.float32),
        }


def pair_weights(score: Array, label: Array, query: Array, weight: Array) -> list[float]:
    """Return the weights of pairs in order, of all others, and of those of equal scores, summed.

    Pairs are rows of one query with different labels; each counts with the mean of its weights.
    Takes memory in proportion to the rows: labels that differ do so in one highest bit of their
    ranks, and for each bit the pairs of a row are ranges of rows sorted by score.
    """
    ranks = np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int64)
    queries = np.unique(query, return_inverse=True)[1].reshape(-1).astype(np.int64)
    totals = [0.0, 0.0, 0.0]
    for bit in range(int(ranks.max(initial=0)).bit_length()):
        group = queries * (ranks.max() + 1) + (ranks >> bit + 1)
        order = np.lexsort((score, group))
        s, g, w = score[order], group[order], weight[order].astype(np.float64)
        is_first = np.append(True, g[1:] != g[:-1])
        key = np.cumsum(is_first | np.append(True, s[1:] != s[:-1]))
        bounds = np.append(np.flatnonzero(is_first), len(g))
        number = np.cumsum(is_first) - 1
        upper = (ranks[order] >> bit & 1).astype(bool)
        sums, lower = np.append(0.0, np.cumsum(w[~upper])), key[~upper]
        own, weights, number = key[upper], w[upper], number[upper]
        start = np.searchsorted(lower, key[bounds[number]])
        less, same = np.searchsorted(lower, own), np.searchsorted(lower, own, "right")
        end = np.searchsorted(lower, key[bounds[number + 1] - 1], "right")
        behind = np.where(np.isnan(s[upper]), start, less)
        for place, (a, b) in enumerate(((start, behind), (behind, end), (less, same))):
            totals[place] += 0.5 * float((weights * (b - a) + sums[b] - sums[a]).sum())
    return totals


class PositiveNegativePair(OpDef, op="positive_negative_pair"):
    """Counts of row pairs of the same query whose scores are ordered as their labels.

    Score is [rows, width], of which `column` is used; Label and QueryID are [rows, 1]. Pairs of
    different labels count with the mean of their weights: PositivePair those in order,
    NegativePair all others, NeutralPair those of equal scores; [1] each, added to the accumulated
    counts. Reference: positive_negative_pair_op.h.
    """

    no_kernel_reason = "its groups of rows are data-dependent"

    Score = reads()
    Label = reads()
    QueryID = reads()
    AccumulatePositivePair = reads(optional=True)
    AccumulateNegativePair = reads(optional=True)
    AccumulateNeutralPair = reads(optional=True)
    Weight = reads(optional=True)
    PositivePair = writes()
    NegativePair = writes()
    NeutralPair = writes(optional=True)
    column = attr(0)

    lod_source = ""

    def infer(
        self, Score: TensorType, Label: TensorType, QueryID: TensorType
    ) -> dict[str, TensorType]:
        require_dtype(self.kind, "QueryID", QueryID, DType.INT64)
        require_same_shape(self.kind, Label=Label, QueryID=QueryID)
        width = Score.shape[-1]
        if Score.rank != 2 or (isinstance(width, int) and not -width <= self.column < width):
            raise ShapeError(f"{self.kind}: Score is {Score}, expected a column {self.column}")
        one = Score.with_shape((1,))
        return {"PositivePair": one, "NegativePair": one, "NeutralPair": one}

    def numpy(
        self,
        Score: Array,
        Label: Array,
        QueryID: Array,
        AccumulatePositivePair: Array | None,
        AccumulateNegativePair: Array | None,
        AccumulateNeutralPair: Array | None,
        Weight: Array | None,
    ) -> dict[str, Array]:
        score, label, query = Score[:, self.column], Label.reshape(-1), QueryID.reshape(-1)
        weight = np.ones_like(score) if Weight is None else Weight.reshape(-1)
        counts = pair_weights(score, label, query, weight)
        before = AccumulatePositivePair, AccumulateNegativePair, AccumulateNeutralPair
        return {
            name: np.array([count], Score.dtype) + (0 if so_far is None else so_far.reshape(1))
            for name, count, so_far in zip(
                ("PositivePair", "NegativePair", "NeutralPair"), counts, before, strict=True
            )
        }
