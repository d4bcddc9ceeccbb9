"""Layers for single-shot detectors: prior boxes, prediction heads, loss and detection output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.detection import (
    append_outputs,
    bipartite_match,
    box_coder,
    iou_similarity,
    target_assign,
)
from fluid.layers.images.convolution import conv2d
from fluid.layers.loss import smooth_l1, softmax_with_cross_entropy
from fluid.layers.mathematics.activation import softmax
from fluid.layers.mathematics.indexing import slice as slice_axes
from fluid.layers.mathematics.reductions import reduce_sum
from fluid.layers.mathematics.shapes import concat, flatten, shape, transpose
from fluid.layers.nn import reshape
from fluid.layers.tensor import cast
from fluid.recording.annotations import Attributes
from fluid.recording.arguments import UNCHECKED
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype
from fluid.recording.narrowing import is_sequence

__all__ = ["density_prior_box", "detection_output", "multi_box_head", "prior_box", "ssd_loss"]

_FULL_PRECISION = FLOATS[1:]
_SQUARE = [1.0]
_VARIANCE = [0.1, 0.1, 0.2, 0.2]
_STEPS = [0.0, 0.0]
"""Default values in the signatures."""
_Size = Annotated[float | Sequence[float], UNCHECKED]
"""The sizes of the priors of a feature map."""


def _listed(value: Sequence[float] | float | None) -> list[float]:
    if value is None:
        raise TypeError("sizes, densities and ratios must be numbers, but received None")
    return list(value) if isinstance(value, Sequence) else [value]


def _steps(steps: Sequence[float]) -> list[float]:
    if not isinstance(steps, list | tuple) or len(steps) != 2:
        raise ValueError(f"steps must be a width and a height, but received {steps!r}")
    return [float(step) for step in steps]


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: float | Sequence[float],
    max_sizes: Sequence[float] | None = None,
    aspect_ratios: float | Sequence[float] = _SQUARE,
    variance: Sequence[float] = _VARIANCE,
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = _STEPS,
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Return prior boxes [H, W, priors, 4] of each size and ratio at each cell, and their
    variances.

    Boxes are normalized by the size of `image`; `steps` is the distance between cells, computed
    from the image size where it is 0.

    >>> import fluid
    >>> features = fluid.layers.data("prior_doc", [8, 4, 5])
    >>> image = fluid.layers.data("prior_image", [3, 40, 50])
    >>> boxes, variances = fluid.layers.prior_box(features, image, [10.0], aspect_ratios=[1.0, 2.0])
    >>> boxes.shape
    (4, 5, 2, 4)
    """
    check_variable_and_dtype(input, "input", ("uint8", "int8", *_FULL_PRECISION), "prior_box")
    width, height = _steps(steps)
    attrs: dict[str, object] = {
        "min_sizes": [float(size) for size in _listed(min_sizes)],
        "aspect_ratios": [float(ratio) for ratio in _listed(aspect_ratios)],
        "variances": list(variance),
        "flip": flip,
        "clip": clip,
        "step_w": width,
        "step_h": height,
        "offset": offset,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
    }
    largest = [] if max_sizes is None else [float(size) for size in _listed(max_sizes)]
    attrs |= {"max_sizes": largest} if largest and largest[0] > 0 else {}
    return _priors("prior_box", input, image, attrs, name)


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = _VARIANCE,
    clip: bool = False,
    steps: Sequence[float] = _STEPS,
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return prior boxes of fixed sizes and ratios, density² of each per cell, and their variances.

    `flatten_to_2d` returns [boxes, 4]. Raises ValueError if densities and sizes differ in length.
    """
    op = "density_prior_box"
    check_variable_and_dtype(input, "input", _FULL_PRECISION, op)
    check_type(densities, "densities", (list, tuple), op)
    check_type(fixed_sizes, "fixed_sizes", (list, tuple), op)
    check_type(fixed_ratios, "fixed_ratios", (list, tuple), op)
    counts, sizes = _listed(densities), _listed(fixed_sizes)
    if len(counts) != len(sizes):
        raise ValueError(f"{op} needs a density for each size, not {counts} for {sizes}")
    width, height = _steps(steps)
    attrs = {
        "variances": list(variance),
        "clip": clip,
        "step_w": width,
        "step_h": height,
        "offset": offset,
        "densities": [int(count) for count in counts],
        "fixed_sizes": [float(size) for size in sizes],
        "fixed_ratios": [float(ratio) for ratio in _listed(fixed_ratios)],
        "flatten_to_2d": flatten_to_2d,
    }
    return _priors(op, input, image, attrs, name)


def _priors(
    op: str, input: Variable, image: Variable, attrs: Attributes, name: str | None
) -> tuple[Variable, Variable]:
    check_variable(image, "image", op)
    inputs = {"Input": input, "Image": image}
    outputs = {"Boxes": input.dtype, "Variances": input.dtype}
    boxes, variances = append_outputs(LayerHelper(op, name=name), inputs, outputs, attrs)
    return boxes, variances


# ---- heads --------------------------------------------------------------------------------------


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: int,
    aspect_ratios: Sequence[_Size],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[_Size] | None = None,
    max_sizes: Sequence[_Size] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = _VARIANCE,
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Append SSD heads: codes [N, M, 4], logits [N, M, classes], priors and their variances.

    Prior sizes are listed per map, or spaced from `min_ratio` to `max_ratio` per cent of
    `base_size`. Raises ValueError for lists without one entry per feature map.
    """
    maps = _checked_maps(inputs, aspect_ratios, step_w, step_h, steps)
    low, high = _prior_sizes(maps, base_size, (min_ratio, max_ratio), min_sizes, max_sizes)
    right, down = (steps or step_w, steps or step_h)
    locations: list[Variable] = []
    logits: list[Variable] = []
    priors: list[tuple[Variable, Variable]] = []
    for number, feature_map in enumerate(inputs):
        between = [right[number] if right else 0.0, down[number] if down and right else 0.0]
        ratios = _listed(aspect_ratios[number]) if aspect_ratios else []
        sizes = (_listed(low[number]), _listed(high[number]), ratios)
        more = (variance, flip, clip, between, offset, None, min_max_aspect_ratios_order)
        priors.append(prior_box(feature_map, image, *sizes, *more))
        count = priors[-1][0].shape[2]
        window = (kernel_size, stride, pad)
        locations.append(_head(feature_map, count * 4, window))
        logits.append(_head(feature_map, count * num_classes, window))
    return _concat_maps(locations, logits, priors, num_classes)


def _checked_maps(inputs: object, *lists: object) -> int:
    """Return the number of feature maps; ValueError if a list's length differs from it."""
    if not is_sequence(inputs):
        raise ValueError("inputs of multi_box_head must be a list or a tuple")
    for option in lists:
        if option and not (is_sequence(option) and len(option) == len(inputs)):
            wanted = f"{len(inputs)} entries, one per feature map"
            raise ValueError(f"multi_box_head needs {wanted}, not {option!r}")
    return len(inputs)


def _prior_sizes(
    maps: int,
    base: int,
    ratios: tuple[int | None, int | None],
    low: Sequence[_Size] | None,
    high: Sequence[_Size] | None,
) -> tuple[Sequence[_Size], Sequence[_Size]]:
    """Return the minimum and maximum sizes per map; ValueError if they cannot be determined."""
    first, last = ratios
    if low is None and high is None and maps > 2 and first is not None and last is not None:
        step = (last - first) // (maps - 2)
        percents = range(first, last + 1, step)
        smallest = [base * 0.1, *(base * ratio / 100.0 for ratio in percents)]
        return smallest, [base * 0.2, *(base * (ratio + step) / 100.0 for ratio in percents)]
    if low is None or high is None or not len(low) == len(high) == maps:
        raise ValueError(
            f"multi_box_head needs {maps} min_sizes and max_sizes, or for more than two maps ratios"
        )
    return low, high


def _head(input: Variable, count: int, window: tuple[int, int, int]) -> Variable:
    """Append a convolution that predicts `count` channels, flattened per image."""
    size, stride, pad = window
    predicted = conv2d(input, num_filters=count, filter_size=size, padding=pad, stride=stride)
    return flatten(transpose(predicted, [0, 2, 3, 1]), axis=1)


def _concat_maps(
    locations: list[Variable],
    logits: list[Variable],
    priors: list[tuple[Variable, Variable]],
    classes: int,
) -> tuple[Variable, Variable, Variable, Variable]:
    if len(priors) == 1:
        return locations[0], logits[0], *priors[0]
    flat = [[flatten(variable, axis=3) for variable in pair] for pair in priors]
    boxes, variances = (concat([pair[which] for pair in flat]) for which in (0, 1))
    boxes.stop_gradient = variances.stop_gradient = True
    codes = reshape(concat(locations, axis=1), [0, -1, 4])
    return codes, reshape(concat(logits, axis=1), [0, -1, classes]), boxes, variances


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Decode boxes `loc` [N, M, 4] and apply NMS: rows of class, score and box, one LoD per image.

    As in the reference, the background is class 0 and the NMS threshold constant:
    `background_label` and `nms_eta` have no effect.
    """
    decoded = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    likely = transpose(softmax(scores), [0, 2, 1])
    likely.stop_gradient = True
    attrs = {
        "background_label": 0,
        "nms_threshold": nms_threshold,
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "score_threshold": score_threshold,
        "nms_eta": 1.0,
    }
    helper = LayerHelper("multiclass_nms2" if return_index else "multiclass_nms")
    outputs = {"Out": decoded.dtype, **({"Index": "int32"} if return_index else {})}
    results = append_outputs(helper, {"Scores": likely, "BBoxes": decoded}, outputs, attrs)
    return (results[0], results[1]) if return_index else results[0]


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """SSD loss of codes [N, M, 4] and logits [N, M, classes] against ground truth: [N, 1].

    Ground-truth boxes [total, 4] and labels [total, 1] have one sequence per image. Priors are
    matched with them, and per match the `neg_pos_ratio` unmatched priors of highest loss are
    included. Raises ValueError for a `mining_type` other than "max_negative".
    """
    if mining_type != "max_negative":
        raise ValueError(f"mining_type of ssd_loss must be 'max_negative', not {mining_type!r}")
    sizes = shape(confidence)
    overlaps = iou_similarity(gt_box, prior_box)
    matches, near = bipartite_match(overlaps, match_type, overlap_threshold)
    labels = _without_gradient(reshape(gt_label, [0] * (len(gt_label.shape) - 1) + [-1, 1]))
    first, _ = target_assign(labels, matches, mismatch_value=background_label)
    logits = _flatten_rows(confidence)
    first = _without_gradient(_flatten_rows(cast(first, "int64")))
    costs = _costs(logits, first)
    rows = _without_gradient(slice_axes(sizes, axes=[0], starts=[0], ends=[2]))
    costs = _without_gradient(reshape(costs, [-1, 0], actual_shape=rows))
    ratios = {"neg_pos_ratio": neg_pos_ratio, "neg_dist_threshold": neg_overlap}
    negatives, matches = _mine_negatives(costs, matches, near, ratios, sample_size)
    codes = _encoded(prior_box, prior_box_var, gt_box)
    box_targets = target_assign(codes, matches, mismatch_value=background_label)
    label_targets = target_assign(labels, matches, negatives, background_label)
    conf_loss = _confidence_loss(logits, *label_targets)
    loc_loss, weights = _location_loss(location, *box_targets)
    loss = conf_loss * conf_loss_weight + loc_loss * loc_loss_weight
    loss = reduce_sum(reshape(loss, [-1, 0], actual_shape=rows), dim=1, keep_dim=True)
    return loss / reduce_sum(weights) if normalize else loss


def _confidence_loss(logits: Variable, labels: Variable, weights: Variable) -> Variable:
    """Weighted softmax cross entropy of each prior: [N * M, 1]."""
    labels = _without_gradient(cast(_flatten_rows(labels), "int64"))
    return softmax_with_cross_entropy(logits, labels) * _without_gradient(_flatten_rows(weights))


def _costs(logits: Variable, labels: Variable) -> Variable:
    costs = softmax_with_cross_entropy(logits, labels)
    assert isinstance(costs, Variable)
    return costs


def _encoded(priors: Variable, variances: Variable | None, boxes: Variable) -> Variable:
    if variances is None:
        raise TypeError("ssd_loss needs the variances of the priors, but prior_box_var is None")
    return box_coder(priors, variances, boxes, "encode_center_size")


def _location_loss(
    location: Variable, boxes: Variable, weights: Variable
) -> tuple[Variable, Variable]:
    """Weighted smooth L1 loss of each prior's code, and the weights, both [N * M, 1]."""
    loss = smooth_l1(_flatten_rows(location), _without_gradient(_flatten_rows(boxes)))
    weights = _without_gradient(_flatten_rows(weights))
    return loss * weights, weights


def _mine_negatives(
    costs: Variable,
    matches: Variable,
    near: Variable,
    ratios: dict[str, float],
    sample_size: int | None,
) -> tuple[Variable, Variable]:
    """Return the sampled negative priors and the updated match indices."""
    attrs = {**ratios, "mining_type": "max_negative", "sample_size": sample_size}
    inputs = {"ClsLoss": costs, "MatchIndices": matches, "MatchDist": near}
    outputs = {"NegIndices": "int32", "UpdatedMatchIndices": matches.dtype}
    helper = LayerHelper("mine_hard_examples")
    negatives, indices = append_outputs(helper, inputs, outputs, attrs, learns=True)
    return negatives, indices


def _flatten_rows(values: Variable) -> Variable:
    """Flatten the values of each prior to rows."""
    return flatten(values, axis=2)


def _without_gradient(target: Variable) -> Variable:
    """Mark a target as needing no gradient and return it."""
    target.stop_gradient = True
    return target
