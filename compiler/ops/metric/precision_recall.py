"""Precision, recall and F1 of each class, averaged over classes and over rows."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, reads, required, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import (
    require_dtype,
    require_same_shape,
)


def checked_classes(classes: Array, slot: str, count: int) -> Array:
    """Return the classes flattened; raise ValueError for one not in [0, count)."""
    flat = classes.reshape(-1)
    wrong = (flat < 0) | (flat >= count)
    if wrong.any():
        raise ValueError(f"{slot} has {flat[wrong][0]}, expected classes from 0 to {count - 1}")
    return flat


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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_dtype(self.kind, "Indices", s.Indices, DType.INT32)
        require_dtype(self.kind, "Labels", s.Labels, DType.INT32)
        require_same_shape(self.kind, Indices=s.Indices, Labels=s.Labels)
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
