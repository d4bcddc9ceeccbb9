"""Training targets of anchors and proposals: foreground samples, and their box codes.

Boxes are (x1, y1, x2, y2) in elements, both ends inclusive; ground-truth boxes are one sequence per
image. The number of samples depends on the data. None has a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.box_coder import centre_and_size, overlaps, require_boxes
from compiler.ops.detection.nms import lod_offsets
from compiler.ops.type_checks import differ, require_dtype, shown

OVERLAP_TOLERANCE = 1e-5
"""Tolerance within which an anchor is as good as the best one of a ground-truth box."""


def encoded_targets(boxes: Array, true: Array) -> Array:
    """Encode ground-truth boxes relative to boxes, row by row."""
    (middle, size), (centre, sides) = centre_and_size(boxes, 1.0), centre_and_size(true, 1.0)
    return np.concatenate([(centre - middle) / size, np.log(sides / size)], axis=1)


def sampled(positions: Array, count: int, at_random: bool) -> Array:
    """Return at most `count` of `positions`: the first, or a random choice with a fixed seed."""
    if len(positions) <= count:
        return positions
    if not at_random:
        return positions[:count]
    return positions[np.sort(np.random.default_rng(0).choice(len(positions), count, False))]


def foreground(iou: Array, best: Array, positive: float) -> Array:
    """Return True for anchors with enough overlap, or the best one of some ground-truth box; `best`
    are the overlaps that `best_overlaps` returns.
    """
    if not iou.shape[1]:
        return np.zeros(len(iou), np.bool_)
    is_best: Array = iou - iou.max(axis=0, initial=0) > -OVERLAP_TOLERANCE
    return is_best.any(axis=1) | (best >= positive)


def best_overlaps(iou: Array) -> Array:
    """Return the largest overlap of each anchor with a ground-truth box."""
    return iou.max(axis=1, initial=0) if iou.shape[1] else np.zeros(len(iou))


def assigned(
    iou: Array, overlap: tuple[float, float], counts: tuple[int, int], at_random: bool
) -> tuple[Array, Array, Array, Array]:
    """Return anchors with box targets, their weights, foreground anchors, and background anchors.

    `overlap` are the thresholds of foreground and background, `counts` the maximum number of
    foreground anchors, and of all; negative for no limit. An anchor that is both is background, and
    its box target is replaced by the first foreground anchor with weight 0.
    """
    best = best_overlaps(iou)
    all_true = np.flatnonzero(foreground(iou, best, overlap[0]))
    true = sampled(all_true, counts[0], at_random) if counts[0] >= 0 else all_true
    background = np.flatnonzero(best < overlap[1])
    background = (
        sampled(background, counts[1] - len(true), at_random) if counts[1] >= 0 else background
    )
    is_background = np.zeros(len(iou), np.bool_)
    is_background[background] = True
    both, left = true[is_background[true]], true[~is_background[true]]
    positions = np.concatenate([np.full(len(both), true[0] if len(true) else 0), left])
    weights = np.repeat([0.0, 1.0], [len(both), len(left)])
    return positions.astype(np.int64), weights, left, background


class TargetAssignment(OpDef):
    """Training targets of the anchors of each image: Anchor [A, 4], GtBoxes [G, 4], ImInfo [N, 3].

    LocationIndex and ScoreIndex index the anchors of all images. All outputs are one sequence per
    image.
    """

    Anchor = reads(no_grad=True)
    GtBoxes = reads(no_grad=True)
    GtBoxes_lod = reads_lod("GtBoxes")
    IsCrowd = reads(no_grad=True)
    ImInfo = reads(no_grad=True)
    LocationIndex = writes()
    ScoreIndex = writes()
    TargetBBox = writes()
    TargetLabel = writes()
    BBoxInsideWeight = writes()
    LocationIndex_lod = writes_lod("LocationIndex")
    ScoreIndex_lod = writes_lod("ScoreIndex")
    TargetBBox_lod = writes_lod("TargetBBox")
    TargetLabel_lod = writes_lod("TargetLabel")
    BBoxInsideWeight_lod = writes_lod("BBoxInsideWeight")
    lod_source = ""

    def targets(
        self, Anchor: TensorType, GtBoxes: TensorType, IsCrowd: TensorType, ImInfo: TensorType
    ) -> dict[str, object]:
        """Return the output types; raises ShapeError for inputs of other shapes."""
        require_boxes(self.kind, "Anchor", Anchor)
        require_boxes(self.kind, "GtBoxes", GtBoxes)
        require_dtype(self.kind, "IsCrowd", IsCrowd, DType.INT32)
        if ImInfo.rank != 2 or differ(ImInfo.shape[1], 3):
            raise ShapeError(f"{self.kind}: {shown(ImInfo=ImInfo)}, expected [N, 3]")
        index, rows = TensorType(DType.INT32, (UNKNOWN,)), GtBoxes.with_shape((UNKNOWN, 4))
        types = {
            "LocationIndex": index,
            "ScoreIndex": index,
            "TargetBBox": rows,
            "TargetLabel": index.with_shape((UNKNOWN, 1)),
            "BBoxInsideWeight": rows,
        }
        offsets = [TensorType(DType.INT64, (ImInfo.shape[0] + 1,))]
        return {**types, **{f"{slot}_lod": offsets for slot in types}}


def target_rows(
    found: list[tuple[Array, Array, Array, Array]],
    codes: list[Array],
    labels: list[Array],
    anchors: int,
    dtype: np.dtype,
) -> dict[str, Any]:
    """Return the outputs of target assignment from the results per image."""
    location = [image[0] + number * anchors for number, image in enumerate(found)]
    score = [np.concatenate(image[2:]) + number * anchors for number, image in enumerate(found)]
    weights = np.concatenate([image[1] for image in found])
    positions, scores = lod_offsets(location), lod_offsets(score)
    return {
        "LocationIndex_lod": [positions],
        "TargetBBox_lod": [positions],
        "BBoxInsideWeight_lod": [positions],
        "ScoreIndex_lod": [scores],
        "TargetLabel_lod": [scores],
        "LocationIndex": np.concatenate(location).astype(np.int32),
        "ScoreIndex": np.concatenate(score).astype(np.int32),
        "TargetBBox": np.concatenate(codes).astype(dtype),
        "TargetLabel": np.concatenate(labels).astype(np.int32)[:, None],
        "BBoxInsideWeight": np.repeat(weights[:, None], 4, axis=1).astype(dtype),
    }


class RpnTargetAssign(TargetAssignment, op="rpn_target_assign"):
    """RPN targets: sampled foreground anchors, and background anchors up to the batch size.

    An anchor is foreground if its overlap with a ground-truth box is at least
    `rpn_positive_overlap`, or the best of that box, and background below `rpn_negative_overlap`; of
    those `rpn_batch_size_per_im` per image, a fraction `rpn_fg_fraction` foreground, are sampled:
    the first, or with `use_random` a random choice with a fixed seed. Anchors beyond the edge by
    `rpn_straddle_thresh`, and crowds, are excluded. Reference: rpn_target_assign_op.cc.
    """

    no_kernel_reason = "anchors are sampled sequentially"

    rpn_batch_size_per_im = attr(256)
    rpn_straddle_thresh = attr(0.0)
    rpn_positive_overlap = attr(0.7)
    rpn_negative_overlap = attr(0.3)
    rpn_fg_fraction = attr(0.25)
    use_random = attr(True)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        return self.targets(s.Anchor, s.GtBoxes, s.IsCrowd, s.ImInfo)

    def numpy(
        self,
        Anchor: Array,
        GtBoxes: Array,
        GtBoxes_lod: list[Array],
        IsCrowd: Array,
        ImInfo: Array,
    ) -> dict[str, Any]:
        anchors, starts = Anchor.reshape(-1, 4), GtBoxes_lod[-1]
        assignments: list[tuple[Array, Array, Array, Array]] = []
        codes: list[Array] = []
        labels: list[Array] = []
        overlap = (self.rpn_positive_overlap, self.rpn_negative_overlap)
        total = self.rpn_batch_size_per_im if self.rpn_batch_size_per_im > 0 else -1
        true = int(self.rpn_fg_fraction * total) if total > 0 and self.rpn_fg_fraction > 0 else -1
        for number, info in enumerate(ImInfo):
            inside = inside_edges(anchors, info, self.rpn_straddle_thresh)
            image_rows = slice(starts[number], starts[number + 1])
            boxes = GtBoxes[image_rows][IsCrowd[image_rows].reshape(-1) == 0] * info[2]
            near = anchors if len(inside) == len(anchors) else anchors[inside]
            iou = overlaps(boxes, near, 1.0).T  # its rows are short: reduced at once
            result = assigned(iou, overlap, (true, total), self.use_random)
            best = iou[result[0]].argmax(axis=1) if len(boxes) else result[0]
            codes.append(encoded_targets(near[result[0]], boxes[best]))
            labels.append(np.repeat([1, 0], [len(result[2]), len(result[3])]))
            assignments.append((inside[result[0]], result[1], inside[result[2]], inside[result[3]]))
        return target_rows(assignments, codes, labels, len(anchors), GtBoxes.dtype)


def inside_edges(boxes: Array, info: Array, slack: float) -> Array:
    """Return the boxes that exceed the image by at most `slack`; all if it is < 0."""
    if slack < 0:
        return np.arange(len(boxes))
    height, width = info[:2] + slack
    left, top, right, bottom = boxes.T
    is_inside = (left >= -slack) & (top >= -slack) & (right < width) & (bottom < height)
    return np.flatnonzero(is_inside)


class RetinanetTargetAssign(TargetAssignment, op="retinanet_target_assign"):
    """Targets of all anchors: a class if the overlap reaches `positive_overlap`, otherwise 0.

    Anchors from `negative_overlap` up to that are ignored. GtLabels int32 [G, 1] are the classes,
    ForegroundNumber [N, 1] the number of foreground anchors per image plus 1. Crowds are excluded.
    Reference: rpn_target_assign_op.cc.
    """

    no_kernel_reason = "the number of sampled anchors is data-dependent"

    GtLabels = reads(no_grad=True)
    ForegroundNumber = writes()
    ForegroundNumber_lod = writes_lod("ForegroundNumber")
    positive_overlap = attr(0.5)
    negative_overlap = attr(0.4)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        ImInfo = s.ImInfo
        require_dtype(self.kind, "GtLabels", s.GtLabels, DType.INT32)
        result = self.targets(s.Anchor, s.GtBoxes, s.IsCrowd, ImInfo)
        count = TensorType(DType.INT32, (ImInfo.shape[0], 1))
        offsets = [TensorType(DType.INT64, (ImInfo.shape[0] + 1,))]
        return {**result, "ForegroundNumber": count, "ForegroundNumber_lod": offsets}

    def numpy(
        self,
        Anchor: Array,
        GtBoxes: Array,
        GtBoxes_lod: list[Array],
        GtLabels: Array,
        IsCrowd: Array,
        ImInfo: Array,
    ) -> dict[str, Any]:
        anchors, starts = Anchor.reshape(-1, 4), GtBoxes_lod[-1]
        assignments: list[tuple[Array, Array, Array, Array]] = []
        codes: list[Array] = []
        labels: list[Array] = []
        overlap = (self.positive_overlap, self.negative_overlap)
        for number, info in enumerate(ImInfo):
            image_rows = slice(starts[number], starts[number + 1])
            valid = IsCrowd[image_rows].reshape(-1) == 0
            boxes, classes = (
                GtBoxes[image_rows][valid] * info[2],
                GtLabels[image_rows].reshape(-1)[valid],
            )
            iou = overlaps(boxes, anchors, 1.0).T  # its rows are short: reduced at once
            result = assigned(iou, overlap, (-1, -1), False)
            best, true = (
                iou[rows].argmax(axis=1) if len(boxes) else np.zeros(len(rows), np.int64)
                for rows in (result[0], result[2])
            )
            codes.append(encoded_targets(anchors[result[0]], boxes[best]))
            background = np.zeros(len(result[3]), np.int32)
            labels.append(np.concatenate([classes[true], background]))
            assignments.append(result)
        rows = target_rows(assignments, codes, labels, len(anchors), GtBoxes.dtype)
        true = np.array([[len(image[0]) + 1] for image in assignments], np.int32)
        single = [np.arange(len(true) + 1)]
        return {**rows, "ForegroundNumber": true, "ForegroundNumber_lod": single}
