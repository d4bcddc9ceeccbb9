"""Training targets of the second stage of a detector: `generate_proposal_labels`."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import (
    Attr,
    OpDef,
    Slots,
    reads,
    reads_lod,
    required,
    required_list,
    writes,
    writes_lod,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.box_coder import overlaps, require_boxes
from compiler.ops.detection.nms import lod_offsets
from compiler.ops.detection.rpn_target_assign import encoded_targets, sampled
from compiler.ops.type_checks import differ, require_dtype, shown

OUTPUTS = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"


class GenerateProposalLabels(OpDef, op="generate_proposal_labels"):
    """Sample proposals of each image for training: boxes, classes, and box codes for their class.

    RpnRois [R, 4] are in coordinates of the scaled image, GtBoxes [G, 4] in those of the original,
    both in one sequence per image; ImInfo [N, 3] is height, width and scale. A box whose overlap
    with a ground-truth box is at least `fg_thresh` is foreground, one from `bg_thresh_lo` up to
    `bg_thresh_hi` background, class 0; `batch_size_per_im` are sampled, at most `fg_fraction` of
    them foreground: the first, or with `use_random` a random choice with a fixed seed. Ground-truth
    boxes precede the proposals. `is_cascade_rcnn` takes all proposals, and treats as many of the
    first as there are ground-truth boxes as those, in coordinates of the original image, as the
    reference does. Targets are [K, 4·class_nums], codes over `bbox_reg_weights` where the weights
    are 1. Reference: generate_proposal_labels_op.cc.
    """

    no_kernel_reason = "boxes are sampled sequentially"

    RpnRois = reads(no_grad=True)
    RpnRois_lod = reads_lod("RpnRois")
    GtClasses = reads(no_grad=True)
    IsCrowd = reads(no_grad=True)
    GtBoxes = reads(no_grad=True)
    GtBoxes_lod = reads_lod("GtBoxes")
    ImInfo = reads(no_grad=True)
    Rois = writes()
    LabelsInt32 = writes()
    BboxTargets = writes()
    BboxInsideWeights = writes()
    BboxOutsideWeights = writes()
    Rois_lod = writes_lod("Rois")
    LabelsInt32_lod = writes_lod("LabelsInt32")
    BboxTargets_lod = writes_lod("BboxTargets")
    BboxInsideWeights_lod = writes_lod("BboxInsideWeights")
    BboxOutsideWeights_lod = writes_lod("BboxOutsideWeights")
    batch_size_per_im: Attr[int] = required(int)
    fg_fraction: Attr[float] = required(float)
    fg_thresh: Attr[float] = required(float)
    bg_thresh_hi: Attr[float] = required(float)
    bg_thresh_lo: Attr[float] = required(float)
    bbox_reg_weights: Attr[list[float]] = required_list(float)
    class_nums: Attr[int] = required(int)
    use_random: Attr[bool] = required(bool)
    is_cascade_rcnn: Attr[bool] = required(bool)
    is_cls_agnostic: Attr[bool] = required(bool)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        RpnRois, ImInfo = s.RpnRois, s.ImInfo
        require_boxes(self.kind, "RpnRois", RpnRois)
        require_boxes(self.kind, "GtBoxes", s.GtBoxes)
        require_dtype(self.kind, "GtClasses", s.GtClasses, DType.INT32)
        require_dtype(self.kind, "IsCrowd", s.IsCrowd, DType.INT32)
        if ImInfo.rank != 2 or differ(ImInfo.shape[1], 3):
            raise ShapeError(f"{self.kind}: {shown(ImInfo=ImInfo)}, expected [N, 3]")
        codes = RpnRois.with_shape((UNKNOWN, 4 * self.class_nums))
        result: dict[str, object] = dict.fromkeys(OUTPUTS.split(), codes)
        result["Rois"] = RpnRois.with_shape((UNKNOWN, 4))
        result["LabelsInt32"] = TensorType(DType.INT32, (UNKNOWN, 1))
        offsets = [TensorType(DType.INT64, (ImInfo.shape[0] + 1,))]
        return {**result, **{f"{slot}_lod": offsets for slot in OUTPUTS.split()}}

    def numpy(
        self,
        RpnRois: Array,
        RpnRois_lod: list[Array],
        GtClasses: Array,
        IsCrowd: Array,
        GtBoxes: Array,
        GtBoxes_lod: list[Array],
        ImInfo: Array,
    ) -> dict[str, object]:
        starts, first = GtBoxes_lod[-1], RpnRois_lod[-1]
        limits = (self.fg_thresh, self.bg_thresh_hi, self.bg_thresh_lo)
        weights, counts = np.array(self.bbox_reg_weights), (0, 0)
        if not self.is_cascade_rcnn:
            counts = (self.batch_size_per_im, int(self.batch_size_per_im * self.fg_fraction))
        result: list[list[Array]] = []
        for number, info in enumerate(ImInfo):
            image_rows = slice(starts[number], starts[number + 1])
            true, classes = GtBoxes[image_rows], GtClasses[image_rows].reshape(-1)
            boxes = RpnRois[first[number] : first[number + 1]].copy()
            count = len(true) if self.is_cascade_rcnn else 0
            boxes[count:] /= info[2]
            boxes = boxes if count else np.concatenate([true, boxes])
            crowd = np.zeros(len(boxes), np.bool_)
            crowd[: len(true)] = (IsCrowd[image_rows].reshape(-1) != 0)[: len(boxes)]
            iou = overlaps(boxes, true, 1.0)
            taken, count = sample_boxes(iou, crowd, limits, counts, self.use_random)
            match = iou[taken[:count]].argmax(axis=1)
            labels = np.concatenate([classes[match], np.zeros(len(taken) - count, np.int32)])
            codes = encoded_targets(boxes[taken[:count]], true[match]) / weights
            column = np.minimum(labels, 1) if self.is_cls_agnostic else labels
            result.append([boxes[taken] * info[2], labels, *spread(codes, column, self.class_nums)])
        offsets = lod_offsets([sample[0] for sample in result])
        rows = [np.concatenate(part) for part in zip(*result, strict=True)]
        slots = {"Rois": rows[0].astype(RpnRois.dtype)}
        slots["LabelsInt32"] = rows[1].astype(np.int32)[:, None]
        slots["BboxTargets"] = rows[2].astype(RpnRois.dtype)
        weight = rows[3].astype(RpnRois.dtype)
        slots |= {"BboxInsideWeights": weight, "BboxOutsideWeights": weight}
        return {**slots, **{f"{slot}_lod": [offsets] for slot in OUTPUTS.split()}}


def sample_boxes(
    iou: Array,
    crowd: Array,
    limits: tuple[float, float, float],
    counts: tuple[int, int],
    at_random: bool,
) -> tuple[Array, int]:
    """Return the sampled boxes, foreground first, and the number of foreground boxes.

    `limits` are the overlap thresholds of foreground, and of background, upper and lower; `counts`
    the maximum number of boxes, and of foreground boxes; 0 for all.
    """
    most = np.where(crowd, -1.0, iou.max(axis=1, initial=0))
    true = np.flatnonzero(most >= limits[0])
    background = np.flatnonzero((most < limits[0]) & (most >= limits[2]) & (most < limits[1]))
    if counts[0]:
        true = sampled(true, counts[1], at_random)
        background = sampled(background, counts[0] - len(true), at_random)
    return np.concatenate([true, background]), len(true)


def spread(codes: Array, positions: Array, classes: int) -> tuple[Array, Array]:
    """Scatter codes of the first boxes to their class; return them and a mask [K, 4·classes]."""
    result, weight = np.zeros((2, len(positions), classes, 4))
    rows = np.arange(len(codes))
    valid = positions[: len(codes)] > 0
    result[rows[valid], positions[: len(codes)][valid]] = codes[valid]
    weight[rows[valid], positions[: len(codes)][valid]] = 1
    return result.reshape(len(positions), -1), weight.reshape(len(positions), -1)
