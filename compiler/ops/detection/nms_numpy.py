"""Suppression of boxes that say the same, as functions that generated code carries.

Boxes are [M, 4], scores [M]; what is chosen comes as numbers of boxes, the best first.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from compiler.ops.detection.polygons import polygon_overlaps


def touching_overlaps(boxes: Array, others: Array, normalized: bool) -> Array:
    """Intersection over union of boxes [K, 4] with boxes [L, 4]: [K, L]; 0 unless they touch.

    Polygons [K, 2n] have n corners each.
    """
    if others.shape[-1] != 4:
        rows = [polygon_overlaps(box, others) for box in boxes]
        return np.reshape(rows, (len(boxes), len(others)))
    extra = 0.0 if normalized else 1.0
    one, other = boxes.T.copy(), others.T.copy()
    areas = box_areas(one, extra)[:, None], box_areas(other, extra)
    width = shared_sides(one[2], other[2], one[0], other[0])
    height = shared_sides(one[3], other[3], one[1], other[1])
    if normalized and all(((each > 0) & (each < np.inf)).all() for each in areas):
        np.maximum(width, 0, out=width)
        np.maximum(height, 0, out=height)
        shared = np.multiply(width, height, out=width)
        union = np.add(*areas, out=height)
        union -= shared
        return np.divide(shared, union, out=shared)
    touch = (width >= 0) & (height >= 0)
    shared = (width + extra) * (height + extra)
    union = areas[0] + areas[1] - shared
    union[union == 0] = 1
    return np.divide(shared, union, out=np.zeros_like(shared), where=touch)


def shared_sides(ends: Array, other_ends: Array, starts: Array, other_starts: Array) -> Array:
    """Lengths of the intersections of intervals [K] with others [L]: [K, L], negative for gaps."""
    sides = np.minimum(ends[:, None], other_ends)
    sides -= np.maximum(starts[:, None], other_starts)
    return sides


def box_areas(sides: Array, extra: float) -> Array:
    """Areas of boxes whose left, top, right and bottom are the rows of `sides`."""
    return (sides[2] - sides[0] + extra) * (sides[3] - sides[1] + extra)


def best_first(scores: Array, threshold: float, top: int) -> Array:
    """The boxes above a threshold, the best first, at most `top` of them; -1 for all."""
    able = np.flatnonzero(scores > threshold)
    if -1 < top < len(able):
        last = len(able) - max(top, 1)
        able = able[scores[able] >= np.partition(scores[able], last)[last]]
    order = able[np.argsort(-scores[able], kind="stable")]
    return order[:top] if top > -1 else order


def suppress(
    boxes: Array, scores: Array, limits: tuple[float, float, float, int], normalized: bool
) -> Array:
    """The boxes that share no more than a threshold with a better one that is kept.

    `limits` are the least score, the threshold, what it shrinks by with each box while it is above
    a half, and how many boxes are looked at. Candidates are compared in blocks of 128: with each
    other, then those that are kept with all that are left.
    """
    least, threshold, eta, top = limits
    order = best_first(scores, least, top)
    most = np.full(len(order), -np.inf, boxes.dtype)
    found: list[Array] = []
    while len(order):
        block, own = order[:128], boxes[order[:128]]
        shared = touching_overlaps(own, own, normalized)
        kept, threshold = keep_of_block(shared, most[:128], threshold, eta)
        found.append(block[kept])
        left = np.flatnonzero(~(most[128:] > threshold)) + 128
        order, most = order[left], most[left]
        if len(order) and kept:
            better = touching_overlaps(own[kept], boxes[order], normalized)
            np.maximum(most, better.max(axis=0), out=most)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def keep_of_block(
    shared: Array, most: Array, threshold: float, eta: float
) -> tuple[list[int], float]:
    """The positions that are kept of a block, and the threshold after them.

    `shared` are the overlaps of its candidates, the best first; `most` is the greatest overlap of
    each with what is kept so far. While the threshold stays the same, which candidates each one
    removes are the bits of a number.
    """
    if eta < 1 and threshold > 0.5:
        return keep_by_turns(shared, most, threshold, eta)
    over = np.packbits(shared > threshold, axis=1, bitorder="little")
    gone = int.from_bytes(np.packbits(most > threshold, bitorder="little").tobytes(), "little")
    kept: list[int] = []
    for position, row in enumerate(over):
        if not gone >> position & 1:
            kept.append(position)
            gone |= int.from_bytes(row.tobytes(), "little")
    return kept, threshold


def keep_by_turns(
    shared: Array, most: Array, threshold: float, eta: float
) -> tuple[list[int], float]:
    """`keep_of_block` with a threshold that shrinks with each box that is kept; updates `most`."""
    kept: list[int] = []
    for position in range(len(shared)):
        if most[position] > threshold:
            continue
        kept.append(position)
        np.maximum(most, shared[position], out=most)
        threshold = threshold * eta if threshold > 0.5 else threshold
    return kept, threshold


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
        pair = boxes[last : last + 1], boxes[number : number + 1]
        if touching_overlaps(*pair, normalized)[0, 0] <= threshold:
            last = number
            continue
        weights = scores[[number, last]]
        merged = boxes[number] * weights[0] + boxes[last] * weights[1]
        boxes[last] = merged / weights.sum()
        scores[last], scores[number] = weights.sum(), -np.inf


def decayed_scores(
    boxes: Array, scores: Array, sigma: float, gaussian: bool, normalized: bool
) -> Array:
    """Scores of boxes, the best first, lowered by how much they share with better ones.

    A block of 128 boxes at a time is compared with those that are as good or better.
    """
    lowered, most = scores.copy(), np.zeros(len(boxes), boxes.dtype)
    for start in range(0, len(boxes), 128):
        rows, others = slice(start, start + 128), slice(0, start + 128)
        shared = touching_overlaps(boxes[rows], boxes[others], normalized)
        worse = ~np.tri(len(shared), shared.shape[1], start - 1, dtype=np.bool_)
        shared[worse] = 0
        most[rows] = shared.max(axis=1)
        above = most[others]
        if gaussian:
            decay = np.exp((above**2 - shared**2) * sigma)
        else:
            decay = np.divide(np.subtract(1, shared, out=shared), 1 - above, out=shared)
        decay[worse] = 1
        lowered[rows] *= np.minimum(decay.min(axis=1), 1)
    return lowered
