"""Layers for two-stage detectors: anchors, proposals, target assignment, feature pyramids."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.detection import append_outputs
from fluid.layers.mathematics.indexing import gather
from fluid.layers.nn import reshape
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = [
    "anchor_generator",
    "collect_fpn_proposals",
    "distribute_fpn_proposals",
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "retinanet_detection_output",
    "retinanet_target_assign",
    "rpn_target_assign",
]

_FULL_PRECISION = FLOATS[1:]

_VARIANCE = [0.1, 0.1, 0.2, 0.2]
"""Default value in the signatures."""


def anchor_generator(
    input: Variable,
    anchor_sizes: float | Sequence[float] | None = None,
    aspect_ratios: float | Sequence[float] | None = None,
    variance: Sequence[float] = _VARIANCE,
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return anchors [H, W, anchors, 4], one per ratio and size at each cell, and their variances.

    `stride` is the distance between cells, (x, y); ValueError if it does not have two entries.

    >>> import fluid
    >>> features = fluid.layers.data("anchors_doc", [8, 4, 5])
    >>> boxes, _ = fluid.layers.anchor_generator(features, [32.0, 64.0], [1.0], stride=[16.0, 16.0])
    >>> boxes.shape
    (4, 5, 2, 4)
    """
    check_variable(input, "input", "anchor_generator")
    if not isinstance(stride, list | tuple) or len(stride) != 2:
        raise ValueError(f"stride must be a width and a height, but received {stride!r}")
    attrs = {
        "anchor_sizes": _floats(anchor_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": list(variance),
        "stride": _floats(stride),
        "offset": offset,
    }
    outputs = {"Anchors": input.dtype, "Variances": input.dtype}
    helper = LayerHelper("anchor_generator", name=name)
    anchors, variances = append_outputs(helper, {"Input": input}, outputs, attrs)
    return anchors, variances


def _floats(values: float | Sequence[float] | None) -> list[float]:
    if values is None:
        raise TypeError("anchor_generator takes sizes and ratios, but received None")
    return [float(value) for value in (values if isinstance(values, Sequence) else [values])]


def _check_all(op: str, kinds: Sequence[str], **values: object) -> None:
    """Raise TypeError if an argument is not a variable or has a dtype that is not in `kinds`."""
    for label, value in values.items():
        check_variable_and_dtype(value, label, kinds, op)


# ---- targets of anchors -------------------------------------------------------------------------


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Sample anchors to train a region proposal network; return their predictions and targets.

    Returns logits [F+B, 1], predicted codes [F, 4], labels [F+B, 1], target codes [F, 4] and their
    weights. F anchors have an IoU with a ground-truth box of at least `rpn_positive_overlap`, B
    anchors one below `rpn_negative_overlap`.
    """
    op = "rpn_target_assign"
    _check_all(
        op, _FULL_PRECISION, bbox_pred=bbox_pred, cls_logits=cls_logits, anchor_box=anchor_box
    )
    _check_all(op, _FULL_PRECISION, anchor_var=anchor_var, gt_boxes=gt_boxes, im_info=im_info)
    _check_all(op, ["int32"], is_crowd=is_crowd)
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    outputs = _TARGETS | dict.fromkeys(("TargetBBox", "BBoxInsideWeight"), anchor_box.dtype)
    results = append_outputs(LayerHelper(op), inputs, outputs, attrs)
    positions, scores, labels, codes, weights = results
    logits, boxes = reshape(cls_logits, (-1, 1)), reshape(bbox_pred, (-1, 4))
    return gather(logits, scores), gather(boxes, positions), labels, codes, weights


_TARGETS: dict[str, DTypeLike] = {
    "LocationIndex": "int32",
    "ScoreIndex": "int32",
    "TargetLabel": "int32",
}


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Assign targets to the anchors of RetinaNet; return their predictions and targets.

    Returns logits [F+B, classes], predicted codes [F, 4], labels [F+B, 1], target codes [F, 4],
    their weights, and the number of foreground anchors of each image.
    """
    op = "retinanet_target_assign"
    _check_all(
        op, _FULL_PRECISION, bbox_pred=bbox_pred, cls_logits=cls_logits, anchor_box=anchor_box
    )
    _check_all(op, _FULL_PRECISION, anchor_var=anchor_var, gt_boxes=gt_boxes, im_info=im_info)
    _check_all(op, ["int32"], gt_labels=gt_labels, is_crowd=is_crowd)
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "GtLabels": gt_labels}
    inputs |= {"IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    outputs = _TARGETS | dict.fromkeys(("TargetBBox", "BBoxInsideWeight"), anchor_box.dtype)
    outputs["ForegroundNumber"] = "int32"
    results = append_outputs(LayerHelper(op), inputs, outputs, attrs)
    positions, scores, labels, codes, weights, count = results
    logits, boxes = reshape(cls_logits, (-1, num_classes)), reshape(bbox_pred, (-1, 4))
    return gather(logits, scores), gather(boxes, positions), labels, codes, weights, count


# ---- proposals ----------------------------------------------------------------------------------


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Return the boxes [K, 4] with the highest scores of each image and their scores [K, 1] (LoD).

    `scores` is [N, A, H, W], `bbox_deltas` [N, 4·A, H, W], anchors and variances are [H, W, A, 4].
    `return_rois_num` also returns the end row of each image's boxes [N].
    """
    op = "generate_proposals"
    _check_all(op, ["float32"], scores=scores, bbox_deltas=bbox_deltas, anchors=anchors)
    _check_all(op, ["float32"], variances=variances)
    _check_all(op, _FULL_PRECISION, im_info=im_info)
    inputs = {"Scores": scores, "BboxDeltas": bbox_deltas, "ImInfo": im_info}
    inputs |= {"Anchors": anchors, "Variances": variances}
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": nms_thresh,
        "min_size": min_size,
        "eta": eta,
    }
    outputs = {"RpnRois": bbox_deltas.dtype, "RpnRoiProbs": scores.dtype, "RpnRoisLod": "int32"}
    results = append_outputs(LayerHelper(op, name=name), inputs, outputs, attrs)
    return results if return_rois_num else results[:2]


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = _VARIANCE,
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Sample proposals for training: boxes, classes (0: background), per-class codes, two
    weights.
    """
    op = "generate_proposal_labels"
    _check_all(op, _FULL_PRECISION, rpn_rois=rpn_rois)
    _check_all(op, ["int32"], gt_classes=gt_classes, is_crowd=is_crowd)
    inputs = {"RpnRois": rpn_rois, "GtClasses": gt_classes, "IsCrowd": is_crowd}
    inputs |= {"GtBoxes": gt_boxes, "ImInfo": im_info}
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": fg_fraction,
        "fg_thresh": fg_thresh,
        "bg_thresh_hi": bg_thresh_hi,
        "bg_thresh_lo": bg_thresh_lo,
        "bbox_reg_weights": list(bbox_reg_weights),
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    codes = ("BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")
    outputs = {"Rois": rpn_rois.dtype, "LabelsInt32": gt_classes.dtype}
    outputs |= dict.fromkeys(codes, rpn_rois.dtype)
    return append_outputs(LayerHelper(op), inputs, outputs, attrs)


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """Return the foreground boxes, their row indices and mask targets [K, classes * resolution²].

    `gt_segms` [points, 2] has LoD levels for images, objects and polygons. Masks of classes other
    than that of the box are -1.
    """
    helper = LayerHelper("generate_mask_labels")
    check_variable(rois, "rois", helper.layer_type)
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    outputs = {"MaskRois": rois.dtype, "RoiHasMaskInt32": gt_classes.dtype}
    outputs["MaskInt32"] = gt_classes.dtype
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return append_outputs(helper, inputs, outputs, attrs)


def retinanet_detection_output(
    bboxes: list[Variable],
    scores: list[Variable],
    anchors: list[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """Merge the detections of all levels: rows of class, score and box, one sequence per image.

    As in the reference, the NMS threshold is constant; `nms_eta` has no effect.
    """
    op = "retinanet_detection_output"
    for label, values in (("bboxes", bboxes), ("scores", scores), ("anchors", anchors)):
        check_type(values, label, list, op)
        for variable in values:
            check_variable_and_dtype(variable, label, _FULL_PRECISION, op)
    _check_all(op, _FULL_PRECISION, im_info=im_info)
    inputs = {"BBoxes": bboxes, "Scores": scores, "Anchors": anchors, "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": 1.0,
    }
    return append_outputs(LayerHelper(op), inputs, {"Out": scores[0].dtype}, attrs)[0]


# ---- pyramids -----------------------------------------------------------------------------------


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Distribute boxes over pyramid levels; also return each box's row in the concatenated levels.

    A box of size `refer_scale` is assigned to `refer_level`, one twice as large to the next level.
    """
    check_variable(fpn_rois, "fpn_rois", "distribute_fpn_proposals")
    helper = LayerHelper("distribute_fpn_proposals", name=name)
    levels = [
        helper.create_variable_for_type_inference(fpn_rois.dtype)
        for _ in range(max_level - min_level + 1)
    ]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        "distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": levels, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """Return the `post_nms_top_n` boxes with the highest scores of all levels, one sequence per
    image.
    """
    count = max_level - min_level + 1
    rois, scores = list(multi_rois[:count]), list(multi_scores[:count])
    for variable in (*rois, *scores):
        check_variable(variable, "multi_rois and multi_scores", "collect_fpn_proposals")
    helper = LayerHelper("collect_fpn_proposals", name=name)
    inputs = {"MultiLevelRois": rois, "MultiLevelScores": scores}
    outputs, attrs = {"FpnRois": rois[0].dtype}, {"post_nms_topN": post_nms_top_n}
    return append_outputs(helper, inputs, outputs, attrs)[0]
