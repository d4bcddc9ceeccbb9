"""Region proposals, and their distribution over a feature pyramid. None has a gradient.

Boxes are (x1, y1, x2, y2) in elements, both ends inclusive. The number of results depends on the
data; they are one sequence per image.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import Attr, OpDef, Slots, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.box_coder import centre_and_size, require_boxes
from compiler.ops.detection.nms import lod_offsets, rows_of_images
from compiler.ops.detection.nms_numpy import best_first, smallest_first, suppress
from compiler.ops.image.layouts import require_images
from compiler.ops.type_checks import differ, shown

LARGEST_CODE = math.log(1000 / 16)
"""Maximum code of a side: it becomes 62.5 times as long."""


def proposed(anchors: Array, codes: Array, variances: Array) -> Array:
    """Decode boxes from codes relative to anchors."""
    middle, size = centre_and_size(anchors, 1.0)
    shifts = codes * variances
    centre = shifts[:, :2] * size + middle
    half = np.exp(np.minimum(shifts[:, 2:], LARGEST_CODE)) * size / 2
    return np.concatenate([centre - half, centre + half - 1], axis=1)


def large_enough(boxes: Array, info: Array, least: float) -> Array:
    """Return True for boxes centred in the image, of a minimum size in the original image."""
    sides = boxes[:, 2:] - boxes[:, :2]
    middle = boxes[:, :2] + (sides + 1) / 2
    valid = (sides / info[2] + 1 >= max(least, 1.0)).all(axis=1)
    return valid & (middle <= info[1::-1]).all(axis=1)


class GenerateProposals(OpDef, op="generate_proposals"):
    """RpnRois [K, 4], RpnRoiProbs [K, 1] = the most likely boxes of each image.

    Scores are [N, A, H, W], BboxDeltas [N, 4·A, H, W] codes, ImInfo [N, 3] height, width and scale,
    Anchors and Variances [H, W, A, 4]. The best `pre_nms_topN` are decoded, clipped, dropped below
    `min_size`, and suppressed; at most `post_nms_topN` remain. RpnRoisLod [N] holds the end offset
    of each image. Reference: generate_proposals_op.cc.
    """

    no_kernel_reason = "boxes are suppressed sequentially"
    largest_code = LARGEST_CODE

    Scores = reads(no_grad=True)
    BboxDeltas = reads(no_grad=True)
    ImInfo = reads(no_grad=True)
    Anchors = reads(no_grad=True)
    Variances = reads(no_grad=True)
    RpnRois = writes()
    RpnRois_lod = writes_lod("RpnRois")
    RpnRoiProbs = writes()
    RpnRoiProbs_lod = writes_lod("RpnRoiProbs")
    RpnRoisLod = writes(optional=True)
    pre_nms_topN: Attr[int] = required(int)
    post_nms_topN: Attr[int] = required(int)
    nms_thresh: Attr[float] = required(float)
    min_size: Attr[float] = required(float)
    eta: Attr[float] = required(float)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Scores, BboxDeltas = s.Scores, s.BboxDeltas
        require_images(self.kind, "Scores", Scores)
        require_images(self.kind, "BboxDeltas", BboxDeltas)
        require_boxes(self.kind, "Anchors", s.Anchors)
        if differ(BboxDeltas.shape[1], Scores.shape[1] * 4) or differ(s.ImInfo.shape[1], 3):
            shapes = shown(Scores=Scores, BboxDeltas=BboxDeltas, ImInfo=s.ImInfo)
            raise ShapeError(f"generate_proposals: {shapes}, expected 4 codes per score and [N, 3]")
        offsets = [TensorType(DType.INT64, (Scores.shape[0] + 1,))]
        return {
            "RpnRois": BboxDeltas.with_shape((UNKNOWN, 4)),
            "RpnRoiProbs": Scores.with_shape((UNKNOWN, 1)),
            "RpnRois_lod": offsets,
            "RpnRoiProbs_lod": offsets,
            "RpnRoisLod": TensorType(DType.INT64, Scores.shape[:1]),
        }

    def numpy(
        self, Scores: Array, BboxDeltas: Array, ImInfo: Array, Anchors: Array, Variances: Array
    ) -> dict[str, object]:
        anchors, variances = Anchors.reshape(-1, 4), Variances.reshape(-1, 4)
        boxes: list[Array] = []
        probs: list[Array] = []
        for score, code, info in zip(Scores, BboxDeltas, ImInfo, strict=True):
            scores = np.moveaxis(score, 0, -1).reshape(-1)
            codes = np.moveaxis(code, 0, -1).reshape(-1, 4)
            order = smallest_first(-scores, self.pre_nms_topN if self.pre_nms_topN > 0 else -1)
            proposals = proposed(anchors[order], codes[order], variances[order])
            proposals = np.clip(proposals, 0, np.tile(info[1::-1] - 1, 2)).astype(Scores.dtype)
            valid = large_enough(proposals, info, self.min_size)
            proposals, scores = proposals[valid], scores[order][valid]
            if self.nms_thresh > 0:
                limits = (-np.inf, self.nms_thresh, self.eta, -1)
                most = self.post_nms_topN if self.post_nms_topN > 0 else -1
                selected = suppress(proposals, scores, limits, False, most)
                proposals, scores = proposals[selected], scores[selected]
            boxes.append(proposals)
            probs.append(scores[:, None])
        offsets = lod_offsets(boxes)
        return {
            "RpnRois": rows_of_images(boxes, 4, Scores.dtype),
            "RpnRoiProbs": rows_of_images(probs, 1, Scores.dtype),
            "RpnRois_lod": [offsets],
            "RpnRoiProbs_lod": [offsets],
            "RpnRoisLod": offsets[1:],
        }


LEVELS = between(-64, 64)
"""Range of feature pyramid levels: boxes of the smallest and the largest float lie within it."""


class DistributeFpnProposals(OpDef, op="distribute_fpn_proposals"):
    """MultiFpnRois = the boxes of each level, by size; RestoreIndex = the new row of each box.

    A box of side `refer_scale` is assigned to `refer_level`, one twice as large to the next level,
    clamped to `min_level` and `max_level`. Row i of FpnRois is row RestoreIndex[i] of all levels
    concatenated. Reference: distribute_fpn_proposals_op.h.
    """

    no_kernel_reason = "the number of boxes per level is data-dependent"
    lod_source = ""

    FpnRois = reads(no_grad=True)
    FpnRois_lod = reads_lod("FpnRois")
    MultiFpnRois = writes(many=True)
    MultiFpnRois_lod = writes_lod("MultiFpnRois")
    RestoreIndex = writes()
    min_level: Attr[int] = required(int, LEVELS)
    max_level: Attr[int] = required(int, LEVELS)
    refer_level: Attr[int] = required(int)
    refer_scale: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        FpnRois = s.FpnRois
        FpnRois_lod = s.all("FpnRois_lod")
        require_boxes(self.kind, "FpnRois", FpnRois)
        levels = self.max_level - self.min_level + 1
        if levels < 1:
            raise BadAttribute(
                f"{self.kind}: 'max_level' is {self.max_level}, expected at least 'min_level' "
                f"{self.min_level}"
            )
        offsets = FpnRois_lod[-1] if FpnRois_lod else TensorType(DType.INT64, (UNKNOWN,))
        return {
            "MultiFpnRois": [FpnRois.with_shape((UNKNOWN, 4))] * levels,
            "MultiFpnRois_lod": [offsets] * levels,
            "RestoreIndex": TensorType(DType.INT32, (FpnRois.shape[0], 1)),
        }

    def numpy(self, FpnRois: Array, FpnRois_lod: list[Array]) -> dict[str, object]:
        sides = FpnRois[:, 2:] - FpnRois[:, :2]
        area = np.where((sides < 0).any(axis=1), 0, (sides + 1).prod(axis=1))
        steps = np.floor(np.log2(np.sqrt(area) / self.refer_scale + 1e-6))
        level = np.clip(steps + self.refer_level, self.min_level, self.max_level)
        order = np.argsort(level, kind="stable")
        restore = np.empty((len(level), 1), np.int32)
        restore[order, 0] = np.arange(len(level))
        rois: list[Array] = []
        offsets: list[Array] = []
        for level_number in range(self.min_level, self.max_level + 1):
            chosen = level == level_number
            rois.append(FpnRois[chosen])
            offsets.append(np.concatenate([[0], np.cumsum(chosen)])[FpnRois_lod[-1]])
        return {"MultiFpnRois": rois, "MultiFpnRois_lod": offsets, "RestoreIndex": restore}


class CollectFpnProposals(OpDef, op="collect_fpn_proposals"):
    """FpnRois = the best `post_nms_topN` boxes of all levels, in one sequence per image.

    MultiLevelRois and MultiLevelScores have one sequence per image, one tensor per level.
    Reference: collect_fpn_proposals_op.h.
    """

    no_kernel_reason = "the number of boxes per image is data-dependent"

    MultiLevelRois = reads(many=True, no_grad=True)
    MultiLevelRois_lod = reads_lod("MultiLevelRois")
    MultiLevelScores = reads(many=True, no_grad=True)
    FpnRois = writes()
    FpnRois_lod = writes_lod("FpnRois")
    post_nms_topN: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        MultiLevelRois, MultiLevelRois_lod = s.all("MultiLevelRois"), s.all("MultiLevelRois_lod")
        MultiLevelScores = s.all("MultiLevelScores")
        if len(MultiLevelRois) != len(MultiLevelScores):
            counts = f"{len(MultiLevelRois)} levels of boxes and {len(MultiLevelScores)} of scores"
            raise ShapeError(f"collect_fpn_proposals: {counts}, expected equal numbers")
        unknown = TensorType(DType.INT64, (UNKNOWN,))
        offsets = MultiLevelRois_lod[0] if MultiLevelRois_lod else unknown
        rois = MultiLevelRois[0].with_shape((UNKNOWN, 4))
        return {"FpnRois": rois, "FpnRois_lod": [offsets]}

    def numpy(
        self,
        MultiLevelRois: list[Array],
        MultiLevelRois_lod: list[Array],
        MultiLevelScores: list[Array],
    ) -> dict[str, object]:
        counts = [np.diff(starts) for starts in MultiLevelRois_lod]
        images = [np.repeat(np.arange(len(level_counts)), level_counts) for level_counts in counts]
        rois, scores = np.concatenate(MultiLevelRois), np.concatenate(MultiLevelScores)
        image = np.concatenate(images)
        best = smallest_first(-scores.reshape(-1), self.post_nms_topN)
        best = best[np.argsort(image[best], kind="stable")]
        number = np.bincount(image[best], minlength=len(counts[0]))
        offsets = np.concatenate([[0], np.cumsum(number)])
        return {"FpnRois": rois[best], "FpnRois_lod": [offsets]}


class RetinanetDetectionOutput(OpDef, op="retinanet_detection_output"):
    """Out [K, 6] = class (from 1), score and box of the detections of all levels of each image.

    For each level BBoxes are codes [N, M, 4], Scores [N, M, classes] and Anchors [M, 4]; ImInfo [N,
    3] is height, width and scale. The best `nms_top_k` of a level above `score_threshold` (in the
    last level above 0) are decoded, clipped, suppressed by class; `keep_top_k` per image remain.
    Reference: retinanet_detection_output_op.cc.
    """

    no_kernel_reason = "boxes are suppressed sequentially"

    BBoxes = reads(many=True, no_grad=True)
    Scores = reads(many=True, no_grad=True)
    Anchors = reads(many=True, no_grad=True)
    ImInfo = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    score_threshold: Attr[float] = required(float)
    nms_top_k: Attr[int] = required(int)
    nms_threshold: Attr[float] = required(float)
    nms_eta: Attr[float] = required(float)
    keep_top_k: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        BBoxes = s.all("BBoxes")
        if not len(BBoxes) == len(s.all("Scores")) == len(s.all("Anchors")):
            raise ShapeError("retinanet_detection_output: inputs have different numbers of levels")
        for tensor_type in BBoxes:
            require_boxes(self.kind, "BBoxes", tensor_type)
        return {
            "Out": BBoxes[0].with_shape((UNKNOWN, 6)),
            "Out_lod": [TensorType(DType.INT64, (s.ImInfo.shape[0] + 1,))],
        }

    def numpy(
        self, BBoxes: list[Array], Scores: list[Array], Anchors: list[Array], ImInfo: Array
    ) -> dict[str, object]:
        result: list[Array] = []
        limits = (self.score_threshold, self.nms_top_k)
        for image, info in enumerate(ImInfo):
            candidates = [
                level_candidates(boxes[image], scores[image], anchors, info, limits, last)
                for boxes, scores, anchors, last in zip(
                    BBoxes, Scores, Anchors, [*[False] * (len(Anchors) - 1), True], strict=True
                )
            ]
            rows = np.concatenate(candidates)
            selected: list[Array] = []
            for label in range(Scores[0].shape[2]):
                own = rows[rows[:, 0] == label]
                nms_limits = (-np.inf, self.nms_threshold, self.nms_eta, -1)
                selected.append(own[suppress(own[:, 2:], own[:, 1], nms_limits, False)])
            rows = np.concatenate(selected)
            best = smallest_first(-rows[:, 1], self.keep_top_k)
            rows = rows[best] + np.array([1, 0, 0, 0, 0, 0])
            result.append(rows.astype(BBoxes[0].dtype))
        rows = rows_of_images(result, 6, BBoxes[0].dtype)
        return {"Out": rows, "Out_lod": [lod_offsets(result)]}


def level_candidates(
    codes: Array,
    scores: Array,
    anchors: Array,
    info: Array,
    limits: tuple[float, int],
    last: bool,
) -> Array:
    """Return class, score and box, in original image coordinates, of the best of one level."""
    flat = scores.reshape(-1)
    order = best_first(flat, 0.0 if last else limits[0], limits[1])
    number, label = order // scores.shape[1], order % scores.shape[1]
    boxes = proposed_plain(anchors[number], codes[number]) / info[2]
    edges = np.floor(info[1::-1] / info[2] + 0.5) - 1
    boxes = np.clip(boxes, 0, np.tile(edges, 2))
    return np.concatenate([label[:, None], flat[order][:, None], boxes], axis=1)


def proposed_plain(anchors: Array, codes: Array) -> Array:
    """Decode boxes from codes relative to anchors, without a limit on their size."""
    middle, size = centre_and_size(anchors, 1.0)
    centre, half = codes[:, :2] * size + middle, np.exp(codes[:, 2:]) * size / 2
    return np.concatenate([centre - half, centre + half - 1], axis=1)
