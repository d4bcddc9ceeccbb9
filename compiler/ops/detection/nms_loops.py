"""Suppression of boxes that say the same, as functions that generated code carries.

Boxes are [M, 4], scores [M]; what is chosen comes as numbers of boxes, the best first.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from compiler.ops.detection.boxes import overlaps


def overlap_with(box: Array, others: Array, normalized: bool) -> Array:
    """How much of a box each other one shares; boxes that do not touch share nothing."""
    extra = 0.0 if normalized else 1.0
    apart = (others[:, :2] > box[2:]) | (others[:, 2:] < box[:2])
    turned = (box[2:] < box[:2]).any() | (others[:, 2:] < others[:, :2]).any(axis=1)
    found = overlaps(box[None], others, extra)[0]
    return np.where(apart.any(axis=1) | turned, 0, found)


def best_first(scores: Array, threshold: float, top: int) -> Array:
    """The boxes above a threshold, the best first, at most `top` of them; -1 for all."""
    able = np.flatnonzero(scores > threshold)
    order = able[np.argsort(-scores[able], kind="stable")]
    return order[:top] if top > -1 else order


def suppress(
    boxes: Array, scores: Array, limits: tuple[float, float, float, int], normalized: bool
) -> Array:
    """The boxes that share no more than a threshold with a better one that is kept.

    `limits` are the least score, the threshold, what it shrinks by with each box while it is above
    a half, and how many boxes are looked at.
    """
    least, threshold, eta, top = limits
    kept: list[int] = []
    for number in best_first(scores, least, top):
        shared = overlap_with(boxes[number], boxes[kept], normalized)
        if kept and shared.max() > threshold:
            continue
        kept.append(int(number))
        threshold = threshold * eta if eta < 1 and threshold > 0.5 else threshold
    return np.array(kept, np.int64)


def best_of_classes(
    boxes: Array,
    scores: Array,
    limits: tuple[float, float, float, int],
    keep: int,
    options: tuple[int, bool, bool],
) -> tuple[Array, Array]:
    """Classes and numbers of the boxes of one picture that are kept, class by class.

    Boxes are [M, 4] or [M, C, 4], scores [C, M]. `options` are the class of the background, whether
    boxes are normalized, and whether the boxes of a class come in order of their number.
    """
    background, normalized, in_order = options
    labels: list[Array] = []
    numbers: list[Array] = []
    for label, each in enumerate(scores):
        if label == background:
            continue
        own = boxes if boxes.ndim == 2 else boxes[:, label]
        found = suppress(own, each, limits, normalized)
        numbers.append(np.sort(found) if in_order else found)
        labels.append(np.full(len(found), label, np.int64))
    if not labels:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    label, number = np.concatenate(labels), np.concatenate(numbers)
    if keep > -1 and len(label) > keep:
        order = np.argsort(-scores[label, number], kind="stable")[:keep]
        order = order[np.lexsort((number[order], label[order]))] if in_order else order
        order = order if in_order else order[np.argsort(label[order], kind="stable")]
        label, number = label[order], number[order]
    return label, number


def merge_neighbours(boxes: Array, scores: Array, threshold: float, normalized: bool) -> None:
    """Merge every box, in place, into the one before it that it overlaps: their weighted mean.

    The scores of what was merged add up, and that of a box that is gone becomes lower than any.
    """
    last = 0
    for number in range(1, len(boxes)):
        shared = overlap_with(boxes[last], boxes[number : number + 1], normalized)[0]
        if shared <= threshold:
            last = number
            continue
        weights = scores[[number, last]]
        merged = boxes[number] * weights[0] + boxes[last] * weights[1]
        boxes[last] = merged / weights.sum()
        scores[last], scores[number] = weights.sum(), -np.inf


def decayed_scores(
    boxes: Array, scores: Array, sigma: float, gaussian: bool, normalized: bool
) -> Array:
    """Scores of boxes, the best first, lowered by how much they share with better ones."""
    shared = np.stack([overlap_with(box, boxes, normalized) for box in boxes])
    shared = np.tril(shared, -1)
    most = shared.max(axis=1)
    linear = (1 - shared) / (1 - most)
    decay = np.exp((most**2 - shared**2) * sigma) if gaussian else linear
    better = np.tril(np.ones(shared.shape, np.bool_), -1)
    return scores * np.minimum(np.where(better, decay, 1.0).min(axis=1), 1.0)
