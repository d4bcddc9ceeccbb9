"""Suppression compares candidates in blocks; it keeps what one comparison after the other keeps."""

import numpy as np
import pytest

from compiler.ir.types import Array
from compiler.ops.detection.nms_classes_numpy import best_of_classes, by_class
from compiler.ops.detection.nms_numpy import (
    best_first,
    decayed_scores,
    merge_neighbours,
    smallest_first,
    suppress,
    touching_overlaps,
    unsuppressed,
)


def keep_one_by_one(
    boxes: Array, scores: Array, limits: tuple[float, float, float, int], normalized: bool
) -> list[int]:
    """The definition: a candidate is kept unless it overlaps a kept one by more than the limit."""
    least, threshold, eta, top = limits
    order = sorted(np.flatnonzero(scores > least), key=lambda i: -scores[i])
    kept: list[int] = []
    for number in order[: top if top > -1 else None]:
        shared = touching_overlaps(boxes[[number]], boxes[kept], normalized)
        if kept and shared.max() > threshold:
            continue
        kept.append(int(number))
        threshold = threshold * eta if eta < 1 and threshold > 0.5 else threshold
    return kept


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("eta", [1.0, 0.9])
@pytest.mark.parametrize(("threshold", "top"), [(0.3, -1), (0.7, 300), (0.95, 129), (-0.1, 0)])
def test_block_suppression_matches_the_definition(
    threshold: float, top: int, eta: float, normalized: bool
) -> None:
    """500 boxes, four blocks of them, many with equal scores, one of them upside down."""
    random = np.random.default_rng(7)
    corner, size = random.random((500, 2)), random.random((500, 2)) * 0.4
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    boxes[3] = boxes[3][[2, 1, 0, 3]]
    scores = random.random(500).round(2).astype(np.float32)
    limits = (0.05, threshold, eta, top)
    result = suppress(boxes, scores, limits, normalized)
    expected = keep_one_by_one(boxes, scores, limits, normalized)
    np.testing.assert_array_equal(result, expected)
    for keep in (0, 3, 400):
        first = suppress(boxes, scores, limits, normalized, keep)
        np.testing.assert_array_equal(first, expected[:keep])


@pytest.mark.parametrize("options", [(-1, True, False), (1, False, False), (0, True, True)])
@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize(("keep", "top", "eta"), [(3, -1, 1.0), (30, 5, 1.0), (9, 20, 0.9)])
def test_the_surest_boxes_are_those_of_all_classes(
    keep: int, top: int, eta: float, per_class: bool, options: tuple[int, bool, bool]
) -> None:
    """Many scores are equal; 30 boxes are more than the candidates of 5 boxes a class have."""
    random = np.random.default_rng(11)
    corner = random.random((70, 4, 2) if per_class else (70, 2))
    boxes = np.concatenate([corner, corner + 0.3], axis=-1).astype(np.float32)
    scores = random.random((4, 70)).round(1).astype(np.float32)
    inputs = (boxes, scores, (0.05, 0.6, eta, top), keep, options)
    for found, expected in zip(best_of_classes(*inputs), by_class(*inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("top", [-1, 0, 1, 7, 100])
def test_boxes_are_sorted_by_score_then_index(top: int) -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.1, 0.9, 0.5, 0.7] * 3, np.float32)
    order = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > 0.2]
    expected = order if top == -1 else order[:top]
    np.testing.assert_array_equal(best_first(scores, 0.2, top), expected)


def test_boxes_that_do_not_touch_share_nothing() -> None:
    """Pixels of boxes that are not normalized count their last one, but only where boxes touch."""
    boxes = np.array([[0, 0, 1, 1], [2, 0, 3, 1], [1, 1, 2, 2]], np.float32)
    shared = touching_overlaps(boxes, boxes, normalized=False)
    np.testing.assert_allclose(shared, [[1, 0, 1 / 7], [0, 1, 1 / 7], [1 / 7, 1 / 7, 1]], rtol=1e-6)


def overlap(one: Array, other: Array, extra: float) -> float:
    """The definition: intersection over union of two boxes, 0 unless they touch."""
    width = np.minimum(one[2], other[2]) - np.maximum(one[0], other[0])
    height = np.minimum(one[3], other[3]) - np.maximum(one[1], other[1])
    if not (width >= 0 and height >= 0):
        return 0.0
    first, second = (
        (each[2] - each[0] + extra) * (each[3] - each[1] + extra) for each in (one, other)
    )
    shared = (width + extra) * (height + extra)
    return shared / ((first + second - shared) or 1)


ODD = {
    "usual": [],
    "a point": [[0.5, 0.5, 0.5, 0.5]],
    "upside down": [[0.6, 0.6, 0.2, 0.2]],
    "no numbers": [[np.nan, 0, 1, 1], [0, 0, np.inf, 1]],
}


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("odd", ODD)
def test_overlaps_are_those_of_each_pair(odd: str, normalized: bool) -> None:
    random = np.random.default_rng(3)
    corner = random.random((20, 2))
    boxes = np.concatenate([corner, corner + random.random((20, 2)) * 0.5], axis=1)
    boxes = np.concatenate([boxes, np.reshape(ODD[odd], (-1, 4))])
    with np.errstate(invalid="ignore"):
        expected = [[overlap(a, b, 1.0 - normalized) for b in boxes[5:]] for a in boxes]
        actual = touching_overlaps(boxes, boxes[5:], normalized)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("count", [0, 1, 128, 300])
def test_scores_decay_by_overlap_with_better_boxes(count: int, gaussian: bool) -> None:
    random = np.random.default_rng(5)
    corner = random.random((count, 2))
    boxes = np.concatenate([corner, corner + random.random((count, 2)) * 0.5], axis=1)
    scores, shared = -np.sort(-random.random(count)), touching_overlaps(boxes, boxes, True)
    most = [max(shared[i, :i], default=0.0) for i in range(count)]
    expected = scores.copy()
    for i in range(count):
        linear = [(1 - shared[i, j]) / (1 - most[j]) for j in range(i)]
        curved = [np.exp((most[j] ** 2 - shared[i, j] ** 2) * 2.0) for j in range(i)]
        expected[i] *= min([1.0, *(curved if gaussian else linear)])
    actual = decayed_scores(boxes, scores, 2.0, gaussian, True)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def merged_one_by_one(boxes: Array, scores: Array, threshold: float, normalized: bool) -> None:
    """The definition: each box is compared with the last one that was not merged."""
    last = 0
    for number in range(1, len(boxes)):
        overlap = touching_overlaps(boxes[[last]], boxes[[number]], normalized)
        if overlap[0, 0] <= threshold:
            last = number
            continue
        pair = [number, last]
        total = scores[pair].sum()
        boxes[last] = (boxes[number] * scores[number] + boxes[last] * scores[last]) / total
        scores[last], scores[number] = total, -np.inf


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("corners", [4, 8])
def test_neighbours_are_merged_as_by_the_definition(corners: int, normalized: bool) -> None:
    """Runs of boxes that overlap, single ones, and one without area."""
    random = np.random.default_rng(3)
    corner = np.cumsum(random.random((120, 2)) * (random.random((120, 1)) > 0.6), axis=0)
    boxes = np.concatenate([corner, corner + 0.3 + 0.1 * random.random((120, 2))], axis=1)
    boxes[7, 2:] = boxes[7, :2]
    if corners == 8:
        boxes = boxes[:40, [0, 1, 2, 1, 2, 3, 0, 3]]
    boxes = boxes.astype(np.float32)
    scores = random.random(len(boxes)).astype(np.float32)
    want, want_scores = boxes.copy(), scores.copy()
    merged_one_by_one(want, want_scores, 0.3, normalized)
    merge_neighbours(boxes, scores, 0.3, normalized)
    assert 3 < np.isinf(scores).sum() < len(scores) - 3
    np.testing.assert_array_equal(scores, want_scores)
    np.testing.assert_array_equal(boxes, want)


@pytest.mark.parametrize("count", [-1, 0, 1, 8, 13, 99])
def test_the_smallest_are_those_of_a_stable_sort(count: int) -> None:
    keys = np.array([0.5, np.nan, -np.inf, 0.5, np.inf, 0.0, -0.0, 0.5, np.nan, 0.25, 0.5, -1, 0.5])
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(
        smallest_first(keys, count), order if count == -1 else order[:count]
    )


@pytest.mark.parametrize("count", [0, 1, 7, 8, 129])
def test_candidates_are_kept_one_after_the_other(count: int) -> None:
    random = np.random.default_rng(count)
    over, removed = random.random((count, count)) < 0.1, random.random(count) < 0.2
    kept: list[int] = []
    for candidate in np.flatnonzero(~removed):
        if not over[kept, candidate].any():
            kept.append(int(candidate))
    assert unsuppressed(over, removed) == kept
