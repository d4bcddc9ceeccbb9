"""Object detection: IoU, box coding, matching, non-maximum suppression, YOLO heads.

Boxes are (x1, y1, x2, y2). Only the losses are differentiable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = [
    "bipartite_match",
    "box_clip",
    "box_coder",
    "box_decoder_and_assign",
    "iou_similarity",
    "locality_aware_nms",
    "matrix_nms",
    "multiclass_nms",
    "polygon_box_transform",
    "sigmoid_focal_loss",
    "target_assign",
    "yolo_box",
    "yolov3_loss",
]

_FULL_PRECISION = FLOATS[1:]


def append_outputs(
    helper: LayerHelper,
    inputs: Slots,
    outputs: Mapping[str, DTypeLike],
    attrs: Attributes,
    *,
    learns: bool = False,
) -> tuple[Variable, ...]:
    """Append the helper's op; return its outputs, with dtypes by slot from `outputs`."""
    results = {slot: helper.create_variable_for_type_inference(of) for slot, of in outputs.items()}
    helper.append_op(helper.layer_type, inputs=inputs, outputs=results, attrs=attrs)
    for var in results.values():
        var.stop_gradient = not learns
    return tuple(results.values())


# ---- boxes --------------------------------------------------------------------------------------


def iou_similarity(
    x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None
) -> Variable:
    """Intersection over union of boxes x [N, 4] and y [M, 4]: [N, M].

    >>> import fluid
    >>> x, y = (fluid.data(name, [None, 4]) for name in ("iou_x", "iou_y"))
    >>> fluid.layers.iou_similarity(x, y).shape
    (-1, -1)
    """
    attrs = {"box_normalized": box_normalized}
    return append_simple_op("iou_similarity", {"X": x, "Y": y}, attrs, name=name)


def box_coder(
    prior_box: Variable,
    prior_box_var: Variable | Sequence[float],
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Encode boxes relative to priors [M, 4], or decode them: [N, M, 4].

    `encode_center_size` takes boxes [N, 4], `decode_center_size` codes [N, M, 4]; with `axis` 1 the
    priors correspond to axis 0 of the codes. `prior_box_var` is a tensor like the priors, or four
    numbers; TypeError otherwise.
    """
    check_variable(prior_box, "prior_box", "box_coder")
    check_type(prior_box_var, "prior_box_var", (Variable, list), "box_coder")
    inputs = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs: dict[str, object] = {"code_type": code_type, "box_normalized": box_normalized}
    attrs["axis"] = axis
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    else:
        attrs["variance"] = prior_box_var
    helper = LayerHelper("box_coder", name=name)
    return helper.append_result("box_coder", inputs, attrs, prior_box.dtype, slot="OutputBox")


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Clip boxes to their image; `im_info` [N, 3] is its height, width and scale."""
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "box_clip")
    check_variable_and_dtype(im_info, "im_info", _FULL_PRECISION, "box_clip")
    inputs = {"Input": input, "ImInfo": im_info}
    return LayerHelper("box_clip", name=name).append_result("box_clip", inputs, slot="Output")


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Convert corner offsets [N, C, H, W] to corner coordinates, at 4 times the resolution."""
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "polygon_box_transform")
    helper = LayerHelper("polygon_box_transform", name=name)
    return helper.append_result("polygon_box_transform", {"Input": input}, slot="Output")


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decode per-class codes [R, classes * 4]; also return the box of each row's best class."""
    check_variable(prior_box, "prior_box", "box_decoder_and_assign")
    helper = LayerHelper("box_decoder_and_assign", name=name)
    inputs = {"PriorBox": prior_box, "PriorBoxVar": prior_box_var}
    inputs |= {"TargetBox": target_box, "BoxScore": box_score}
    outputs = {"DecodeBox": prior_box.dtype, "OutputAssignBox": prior_box.dtype}
    decoded, assigned = append_outputs(helper, inputs, outputs, {"box_clip": box_clip}, learns=True)
    return decoded, assigned


# ---- matches ------------------------------------------------------------------------------------


def bipartite_match(
    dist_matrix: Variable,
    match_type: str | None = None,
    dist_threshold: float | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Match columns to rows greedily: int32 indices [N, M], -1 without match, and the distances.

    Larger values are closer; the closest pair is matched first. With `match_type` "per_prediction"
    each unmatched column is matched to its closest row if the value is at least `dist_threshold`.
    """
    check_variable(dist_matrix, "dist_matrix", "bipartite_match")
    helper = LayerHelper("bipartite_match", name=name)
    outputs = {"ColToRowMatchIndices": "int32", "ColToRowMatchDist": dist_matrix.dtype}
    attrs = {"match_type": match_type, "dist_threshold": dist_threshold}
    inputs = {"DistMat": dist_matrix}
    indices, distances = append_outputs(helper, inputs, outputs, attrs, learns=True)
    return indices, distances


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Gather the targets of matched priors, weight 1; unmatched: `mismatch_value`, weight 0.

    Priors in `negative_indices` have the mismatch value and weight 1.
    """
    check_variable(input, "input", "target_assign")
    helper = LayerHelper("target_assign", name=name)
    inputs = {"X": input, "MatchIndices": matched_indices, "NegIndices": negative_indices}
    outputs = {"Out": input.dtype, "OutWeight": "float32"}
    attrs = {"mismatch_value": mismatch_value}
    out, weight = append_outputs(helper, inputs, outputs, attrs, learns=True)
    return out, weight


# ---- non-maximum suppression --------------------------------------------------------------------


def _check_nms(
    op: str, boxes: object, scores: object, numbers: Mapping[str, tuple[object, type]]
) -> None:
    check_variable_and_dtype(boxes, "bboxes", _FULL_PRECISION, op)
    check_variable_and_dtype(scores, "scores", _FULL_PRECISION, op)
    for label, (value, kind) in numbers.items():
        check_type(value, label, kind, op)


def _nms_attributes(
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float,
    normalized: bool,
    nms_eta: float,
    background_label: int,
) -> dict[str, tuple[object, type]]:
    """Return the attributes of non-maximum suppression with their required types."""
    return {
        "score_threshold": (score_threshold, float),
        "nms_top_k": (nms_top_k, int),
        "keep_top_k": (keep_top_k, int),
        "nms_threshold": (nms_threshold, float),
        "normalized": (normalized, bool),
        "nms_eta": (nms_eta, float),
        "background_label": (background_label, int),
    }


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Non-maximum suppression per class: rows of class, score and box.

    `bboxes` are [N, M, 4] and `scores` [N, C, M], or sequences [M, C, 4] and [M, C]. The result has
    one sequence per image, or is [[-1]] if nothing is detected.
    """
    numbers = _nms_attributes(
        score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label
    )
    _check_nms("multiclass_nms", bboxes, scores, numbers)
    attrs = {label: value for label, (value, _) in numbers.items()}
    helper = LayerHelper("multiclass_nms", name=name)
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return append_outputs(helper, inputs, {"Out": bboxes.dtype}, attrs)[0]


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """Single-class `multiclass_nms` after merging consecutive overlapping boxes.

    Raises ValueError unless `scores` is [N, 1, M].
    """
    numbers = _nms_attributes(
        score_threshold, nms_top_k, keep_top_k, nms_threshold, normalized, nms_eta, background_label
    )
    _check_nms("locality_aware_nms", bboxes, scores, numbers)
    if len(scores.shape) != 3 or scores.shape[1] != 1:
        shape = list(scores.shape)
        raise ValueError(f"locality_aware_nms takes scores [N, 1, M], but received {shape}")
    attrs = {label: value for label, (value, _) in numbers.items()}
    helper = LayerHelper("locality_aware_nms", name=name)
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return append_outputs(helper, inputs, {"Out": bboxes.dtype}, attrs)[0]


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """Matrix NMS: decay scores by the overlap with better boxes, keep those above `post_threshold`.

    `return_index` also returns the flat indices of the boxes, int32 [K, 1].
    """
    numbers = {
        "score_threshold": (score_threshold, float),
        "post_threshold": (post_threshold, float),
        "nms_top_k": (nms_top_k, int),
        "keep_top_k": (keep_top_k, int),
        "normalized": (normalized, bool),
        "use_gaussian": (use_gaussian, bool),
        "gaussian_sigma": (gaussian_sigma, float),
        "background_label": (background_label, int),
    }
    _check_nms("matrix_nms", bboxes, scores, numbers)
    attrs = {label: value for label, (value, _) in numbers.items()}
    helper = LayerHelper("matrix_nms", name=name)
    outputs = {"Out": bboxes.dtype, "Index": "int32"}
    inputs = {"BBoxes": bboxes, "Scores": scores}
    out, index = append_outputs(helper, inputs, outputs, attrs)
    return (out, index) if return_index else out


# ---- heads and losses ---------------------------------------------------------------------------


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """Sigmoid focal loss per class: [N, classes].

    `label` int32 [N, 1] counts from 1; 0 is background, -1 is ignored. The loss is divided by
    `fg_num`, int32 [1].
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "sigmoid_focal_loss")
    check_variable_and_dtype(label, "label", ["int32"], "sigmoid_focal_loss")
    check_variable_and_dtype(fg_num, "fg_num", ["int32"], "sigmoid_focal_loss")
    attrs = {"gamma": gamma, "alpha": alpha}
    return append_simple_op("sigmoid_focal_loss", {"X": x, "Label": label, "FgNum": fg_num}, attrs)


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Decode a YOLOv3 head to boxes [N, M, 4] and scores [N, M, classes], 0 below `conf_thresh`."""
    check_variable(x, "x", "yolo_box")
    check_variable(img_size, "img_size", "yolo_box")
    check_type(anchors, "anchors", (list, tuple), "yolo_box")
    check_type(class_num, "class_num", int, "yolo_box")
    check_type(conf_thresh, "conf_thresh", float, "yolo_box")
    attrs = {
        "anchors": list(anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    helper, outputs = LayerHelper("yolo_box", name=name), {"Boxes": x.dtype, "Scores": x.dtype}
    inputs = {"X": x, "ImgSize": img_size}
    boxes, scores = append_outputs(helper, inputs, outputs, attrs, learns=True)
    return boxes, scores


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """YOLOv3 loss of the head `x` against ground-truth boxes: [N].

    `gt_box` [N, B, 4] has centers and sizes relative to the image, `gt_label` int32 [N, B] the
    classes, `gt_score` the box weights. Raises TypeError for arguments of other types.
    """
    for value, label in ((x, "x"), (gt_box, "gt_box"), (gt_label, "gt_label")):
        check_variable(value, label, "yolov3_loss")
    check_type(gt_score, "gt_score", (Variable, type(None)), "yolov3_loss")
    check_type(anchors, "anchors", (list, tuple), "yolov3_loss")
    check_type(anchor_mask, "anchor_mask", (list, tuple), "yolov3_loss")
    check_type(class_num, "class_num", int, "yolov3_loss")
    check_type(ignore_thresh, "ignore_thresh", float, "yolov3_loss")
    check_type(use_label_smooth, "use_label_smooth", bool, "yolov3_loss")
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label, "GTScore": gt_score}
    outputs = {"Loss": x.dtype, "ObjectnessMask": "int32", "GTMatchMask": "int32"}
    helper = LayerHelper("yolov3_loss", name=name)
    return append_outputs(helper, inputs, outputs, attrs, learns=True)[0]
