"""Non-maximum suppression, as functions that generated modules carry.

Boxes are [M, 4], scores [M]; results are box indices, in descending order of score.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from compiler.ops.detection.polygons import polygon_overlaps


def touching_overlaps(boxes: Array, others: Array, normalized: bool) -> Array:
    """Return the intersection over union of boxes [K, 4] and [L, 4]: [K, L]; 0 unless they touch.

    Polygons [K, 2n] have n corners each.
    """
    if others.shape[-1] != 4:
        rows = [polygon_overlaps(box, others) for box in boxes]
        return np.reshape(rows, (len(boxes), len(others)))
    extra = 0.0 if normalized else 1.0
    one, other = boxes.T.copy(), others.T.copy()
    areas = box_areas(one, extra)[:, None], box_areas(other, extra)
    width = intersection_lengths(one[2], other[2], one[0], other[0])
    height = intersection_lengths(one[3], other[3], one[1], other[1])
    if normalized and all(((area > 0) & (area < np.inf)).all() for area in areas):
        np.maximum(width, 0, out=width)
        np.maximum(height, 0, out=height)
        intersection = np.multiply(width, height, out=width)
        union = np.add(*areas, out=height)
        union -= intersection
        return np.divide(intersection, union, out=intersection)
    touch = (width >= 0) & (height >= 0)
    intersection = (width + extra) * (height + extra)
    union = areas[0] + areas[1] - intersection
    union[union == 0] = 1
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=touch)


def intersection_lengths(
    ends: Array, other_ends: Array, starts: Array, other_starts: Array
) -> Array:
    """Return lengths of the intersections of intervals [K] and [L]: [K, L], negative for gaps."""
    sides = np.minimum(ends[:, None], other_ends)
    sides -= np.maximum(starts[:, None], other_starts)
    return sides


def box_areas(sides: Array, extra: float) -> Array:
    """Return areas of boxes whose left, top, right and bottom are the rows of `sides`."""
    return (sides[2] - sides[0] + extra) * (sides[3] - sides[1] + extra)


def best_first(scores: Array, threshold: float, top: int) -> Array:
    """Return the boxes above a threshold by descending score, at most `top` of them; -1 for all."""
    valid = np.flatnonzero(scores > threshold)
    return valid[smallest_first(-scores[valid], top)]


def smallest_first(keys: Array, count: int) -> Array:
    """Return the indices of a stable ascending sort, at most the first `count`; -1 for all.

    >>> smallest_first(np.array([3, 1, 2, 1]), 2).tolist()
    [1, 3]
    """
    if not -1 < count < len(keys):
        return np.argsort(keys, kind="stable")
    last = max(count, 1) - 1
    candidates = np.flatnonzero(~(keys > np.partition(keys, last)[last]))
    return candidates[np.argsort(keys[candidates], kind="stable")[:count]]


def suppress(
    boxes: Array,
    scores: Array,
    limits: tuple[float, float, float, int],
    normalized: bool,
    keep: int = -1,
) -> Array:
    """Return the boxes whose overlap with better kept boxes does not exceed a threshold.

    They are in descending order of score, at most the first `keep` of them; -1 for all.
    `limits` are the minimum score, the threshold, the factor that shrinks it with each kept box
    while it is above 0.5, and the maximum number of candidates. Candidates are compared in blocks
    of 128: with each other, then the kept ones with all remaining ones.
    """
    least, threshold, eta, top = limits
    order = best_first(scores, least, top)
    best_iou = np.full(len(order), -np.inf, boxes.dtype)
    selected: list[Array] = []
    count = 0
    while len(order) and (keep < 0 or count < keep):
        block, own = order[:128], boxes[order[:128]]
        iou = touching_overlaps(own, own, normalized)
        survivors, threshold = keep_in_block(iou, best_iou[:128], threshold, eta)
        selected.append(block[survivors])
        count += len(survivors)
        left = np.flatnonzero(~(best_iou[128:] > threshold)) + 128
        order, best_iou = order[left], best_iou[left]
        if len(order) and survivors:
            better = touching_overlaps(own[survivors], boxes[order], normalized)
            np.maximum(best_iou, better.max(axis=0), out=best_iou)
    kept = np.concatenate(selected) if selected else np.empty(0, np.int64)
    return kept[:keep] if keep > -1 else kept


def keep_in_block(
    iou: Array, best_iou: Array, threshold: float, eta: float
) -> tuple[list[int], float]:
    """Return the positions kept from a block, and the updated threshold.

    `iou` are the overlaps of its candidates, in descending order of score; `best_iou` is the
    largest overlap of each with the boxes kept so far.
    """
    if eta < 1 and threshold > 0.5:
        return keep_sequentially(iou, best_iou, threshold, eta)
    return unsuppressed(iou > threshold, best_iou > threshold), threshold


def unsuppressed(over: Array, removed: Array) -> list[int]:
    """Return the candidates that are kept, each of which removes those of its row in `over`.

    `over` is bool [K, K], in descending order of score; `removed` are those that are not kept.
    """
    rows = np.packbits(~over, axis=1, bitorder="little")
    width, rest = rows.shape[1], rows.tobytes()
    free = int.from_bytes(np.packbits(~removed, bitorder="little").tobytes(), "little")
    survivors: list[int] = []
    while free:
        position = (free & -free).bit_length() - 1
        survivors.append(position)
        free &= int.from_bytes(rest[position * width : (position + 1) * width], "little")
        free &= -2 << position
    return survivors


def keep_sequentially(
    iou: Array, best_iou: Array, threshold: float, eta: float
) -> tuple[list[int], float]:
    """`keep_in_block` with a threshold that shrinks with each kept box; updates `best_iou`."""
    survivors: list[int] = []
    for position in range(len(iou)):
        if best_iou[position] > threshold:
            continue
        survivors.append(position)
        np.maximum(best_iou, iou[position], out=best_iou)
        threshold = threshold * eta if threshold > 0.5 else threshold
    return survivors, threshold


def merge_neighbours(boxes: Array, scores: Array, threshold: float, normalized: bool) -> None:
    """Merge each box in place into the preceding box that it overlaps: their weighted mean.

    The scores of merged boxes add up, and that of a removed box becomes -inf. Boxes that follow one
    into which none was merged are compared all at once, but polygons one by one.
    """
    candidates = np.arange(1, len(boxes))
    if boxes.shape[-1] == 4:
        candidates = candidates[~(adjacent_overlaps(boxes, normalized) <= threshold)]
    last, number = 0, 1
    while number < len(boxes):
        if touching_overlaps(boxes[[last]], boxes[[number]], normalized)[0, 0] <= threshold:
            place = np.searchsorted(candidates, number, side="right")
            if place == len(candidates):
                return
            number = int(candidates[place])
            last = number - 1
            continue
        weights = scores[[number, last]]
        merged = boxes[number] * weights[0] + boxes[last] * weights[1]
        boxes[last] = merged / weights.sum()
        scores[last], scores[number] = weights.sum(), -np.inf
        number += 1


def adjacent_overlaps(boxes: Array, normalized: bool) -> Array:
    """Return the intersection over union of each box [M, 4] and the next one: [M - 1].

    The same as `touching_overlaps` of them.
    """
    extra = 0.0 if normalized else 1.0
    areas = box_areas(boxes.T, extra)
    sides = np.minimum(boxes[:-1, 2:], boxes[1:, 2:]) - np.maximum(boxes[:-1, :2], boxes[1:, :2])
    touch = (sides >= 0).all(axis=1)
    intersection = (sides[:, 0] + extra) * (sides[:, 1] + extra)
    union = areas[:-1] + areas[1:] - intersection
    union[union == 0] = 1
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=touch)


def decayed_scores(
    boxes: Array, scores: Array, sigma: float, gaussian: bool, normalized: bool
) -> Array:
    """Return scores, sorted in descending order, decayed by the overlap with better boxes.

    Blocks of 128 boxes are compared with those that are as good or better.
    """
    lowered, best_iou = scores.copy(), np.zeros(len(boxes), boxes.dtype)
    for start in range(0, len(boxes), 128):
        rows, others = slice(start, start + 128), slice(0, start + 128)
        iou = touching_overlaps(boxes[rows], boxes[others], normalized)
        worse = ~np.tri(len(iou), iou.shape[1], start - 1, dtype=np.bool_)
        iou[worse] = 0
        best_iou[rows] = iou.max(axis=1)
        above = best_iou[others]
        if gaussian:
            decay = np.exp((above**2 - iou**2) * sigma)
        else:
            decay = np.divide(np.subtract(1, iou, out=iou), 1 - above, out=iou)
        decay[worse] = 1
        lowered[rows] *= np.minimum(decay.min(axis=1), 1)
    return lowered
