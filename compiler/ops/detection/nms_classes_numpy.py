"""Non-maximum suppression of several classes, as functions that generated modules carry.

Results are the classes and box indices of one image, class by class.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from compiler.ops.detection.nms_numpy import (
    best_first,
    smallest_first,
    suppress,
    touching_overlaps,
    unsuppressed,
)


def best_of_classes(
    boxes: Array,
    scores: Array,
    limits: tuple[float, float, float, int],
    keep: int,
    options: tuple[int, bool, bool],
) -> tuple[Array, Array]:
    """Return classes and indices of the kept boxes of one image, class by class.

    Boxes are [M, 4] or [M, C, 4], scores [C, M]. `options` are the background class, whether boxes
    are normalized, and whether the boxes of a class are sorted by index.
    """
    selected = surest(boxes, scores, limits, keep, options)
    return by_class(boxes, scores, limits, keep, options) if selected is None else selected


def by_class(
    boxes: Array,
    scores: Array,
    limits: tuple[float, float, float, int],
    keep: int,
    options: tuple[int, bool, bool],
) -> tuple[Array, Array]:
    """`best_of_classes` from all boxes of every class."""
    background, normalized, in_order = options
    labels: list[Array] = []
    numbers: list[Array] = []
    for label, class_scores in enumerate(scores):
        if label == background:
            continue
        own = boxes if boxes.ndim == 2 else boxes[:, label]
        selected = suppress(own, class_scores, limits, normalized, keep)
        numbers.append(np.sort(selected) if in_order else selected)
        labels.append(np.full(len(selected), label, np.int64))
    if not labels:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    label, number = np.concatenate(labels), np.concatenate(numbers)
    if keep > -1 and len(label) > keep:
        order = smallest_first(-scores[label, number], keep)
        return grouped(label[order], number[order], in_order)
    return label, number


def grouped(label: Array, number: Array, in_order: bool) -> tuple[Array, Array]:
    """Return boxes class by class, each in its order, or sorted by index."""
    order = np.lexsort((number, label)) if in_order else np.argsort(label, kind="stable")
    return label[order], number[order]


def surest(
    boxes: Array,
    scores: Array,
    limits: tuple[float, float, float, int],
    keep: int,
    options: tuple[int, bool, bool],
) -> tuple[Array, Array] | None:
    """`best_of_classes` from the boxes with the best scores; None if these may not be enough.

    A box is removed by better ones only, so that candidates of all classes are visited by
    descending score until `keep` are kept. The threshold must be constant.
    """
    (_, threshold, eta, _), (_, normalized, in_order) = limits, options
    if not 0 < keep <= 256 or boxes.shape[-1] != 4 or (eta < 1 and threshold > 0.5):
        return None
    candidates = candidate_numbers(scores, limits, options[0])
    values = scores.reshape(-1)[candidates]
    best = best_first(values, -np.inf, 8 * keep)
    label, number = np.divmod(candidates[best], scores.shape[1])
    own = boxes[number] if boxes.ndim == 2 else boxes[number, label]
    selected = suppress_classes(own, label, threshold, normalized, keep)
    if len(selected) < keep and len(best) < len(candidates):
        return None
    return grouped(label[selected], number[selected], in_order)


def candidate_numbers(
    scores: Array, limits: tuple[float, float, float, int], background: int
) -> Array:
    """Return the ascending indices in the flat scores [C * M] of all candidates."""
    least, _, _, top = limits
    above = scores > least
    if 0 <= background < len(above):
        above[background] = False
    if top > -1:
        for label in np.flatnonzero(np.count_nonzero(above, axis=1) > top):
            above[label] = False
            above[label, best_first(scores[label], least, top)] = True
    return np.flatnonzero(above)


def suppress_classes(
    boxes: Array, labels: Array, threshold: float, normalized: bool, keep: int
) -> Array:
    """Return at most `keep` boxes that no better kept box of their class overlaps too much.

    Boxes are in descending order of score; they are compared in blocks of 128.
    """
    selected = np.empty(0, np.int64)
    for start in range(0, len(boxes), 128):
        rows = slice(start, start + 128)
        better = np.concatenate([selected, np.arange(len(labels))[rows]])
        over = touching_overlaps(boxes[better], boxes[rows], normalized) > threshold
        over &= labels[better][:, None] == labels[rows]
        survivors = unsuppressed(over[len(selected) :], over[: len(selected)].any(axis=0))
        selected = np.concatenate([selected, np.array(survivors, np.int64) + start])
        if len(selected) >= keep:
            break
    return selected[:keep]
