"""Region proposals, their distribution over a feature pyramid, and detections of its levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.detection import Suppression
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.sequences import column, counted, offsets_after, owners
from compiler.ir.graph import Op
from compiler.ir.types import DType

INDEX = DType.INT64


@converts("generate_proposals")
def generate_proposals(nodes: Nodes, op: Op) -> None:
    """The best codes of each image, decoded, clipped, and suppressed by a `Scan`.

    Candidates of all images are [N, K], best first; the rows of those that are left are results.
    """
    defn: Any = op.defn
    scores, dtype = op["Scores"], op["Scores"].type.dtype
    images = nodes.size(scores.type.shape[0])
    by_place = nodes.add("Transpose", [nodes.name(scores)], perm=[0, 2, 3, 1])
    flat = _by_image(nodes, by_place, images)
    values, place = _best(nodes, flat, int(defn.pre_nms_topN), axis=1)
    codes = nodes.add("Transpose", [nodes.input(op, "BboxDeltas")], perm=[0, 2, 3, 1])
    codes = _by_image(nodes, codes, images, 4)
    codes = _boxes_at(nodes, codes, place)
    anchors, variances = (
        nodes.add("Reshape", [nodes.input(op, slot), nodes.constant([-1, 4])])
        for slot in ("Anchors", "Variances")
    )
    anchors, variances = (nodes.add("Gather", [name, place]) for name in (anchors, variances))
    info = nodes.input(op, "ImInfo")
    codes = nodes.add("Mul", [codes, variances])
    boxes = _decoded(nodes, anchors, codes, dtype, float(defn.largest_code))
    boxes = _within(nodes, boxes, _of_info(nodes, info, [1, 0, 1, 0]), dtype)
    is_left = _is_large_enough(nodes, boxes, info, max(float(defn.min_size), 1.0), dtype)
    if defn.nms_thresh > 0:
        is_left = nodes.add(
            "And", [is_left, nodes.add("Greater", [values, nodes.scalar(-np.inf, dtype)])]
        )
        rule = Suppression(float(defn.nms_thresh), float(defn.eta), False)
        one = nodes.constant([1])
        sides = [nodes.add("Unsqueeze", [_side(nodes, boxes, side), one]) for side in range(4)]
        kept = rule.kept(nodes, sides, nodes.add("Unsqueeze", [is_left, one]), dtype)
        is_left = nodes.add("Squeeze", [kept, one])
        if int(defn.post_nms_topN) > 0:
            is_left = _first(nodes, is_left, int(defn.post_nms_topN))
    mask = nodes.add("Reshape", [is_left, nodes.constant([-1])])
    for slot, value, width in (("RpnRois", boxes, 4), ("RpnRoiProbs", values, 1)):
        rows = nodes.add("Reshape", [value, nodes.constant([-1, width])])
        nodes.add("Compress", [rows, mask], nodes.output(op, slot), axis=0)
    counts = nodes.add("ReduceSum", [nodes.cast(is_left, INDEX), nodes.constant([1])], keepdims=0)
    offsets = offsets_after(nodes, counts)
    _write_offsets(nodes, op, ["RpnRois_lod", "RpnRoiProbs_lod"], offsets)
    if op.outputs.get("RpnRoisLod"):
        nodes.add("CumSum", [counts, nodes.constant(np.array(0))], nodes.output(op, "RpnRoisLod"))


@converts("distribute_fpn_proposals")
def distribute_fpn_proposals(nodes: Nodes, op: Op) -> None:
    """The boxes of each level, which is the number of powers of two below their side.

    The new row of a box is the number of boxes of lower levels, and of those before it in its own.
    """
    defn: Any = op.defn
    rois, dtype = op["FpnRois"], op["FpnRois"].type.dtype
    if not op.inputs.get("FpnRois_lod"):
        raise Unsupported("its input FpnRois has no LoD")
    starts, boxes = nodes.name(op.inputs["FpnRois_lod"][-1]), nodes.name(rois)
    one, zero = nodes.scalar(1, dtype), nodes.scalar(0, dtype)
    lengths = [
        nodes.add("Sub", [_side(nodes, boxes, high), _side(nodes, boxes, low)])
        for low, high in ((0, 2), (1, 3))
    ]
    area = nodes.add("Mul", [nodes.add("Add", [length, one]) for length in lengths])
    is_empty = nodes.add("Less", [nodes.add("Min", lengths), zero])
    area = nodes.add("Where", [is_empty, zero, area])
    size = nodes.add("Div", [nodes.add("Sqrt", [area]), nodes.scalar(defn.refer_scale, dtype)])
    size = nodes.add("Add", [size, nodes.scalar(1e-6, dtype)])
    zeros = nodes.cast(nodes.add("Mul", [size, zero]), INDEX)
    level = nodes.add("Add", [zeros, nodes.scalar(defn.min_level, INDEX)])
    for above in range(defn.min_level + 1, defn.max_level + 1):
        least = nodes.scalar(2.0 ** (above - defn.refer_level), dtype)
        is_above = nodes.add("GreaterOrEqual", [size, least])
        level = nodes.add("Add", [level, nodes.cast(is_above, INDEX)])
    restore, lower = zeros, nodes.scalar(0, INDEX)
    for number, out in zip(
        range(defn.min_level, defn.max_level + 1), op.outputs["MultiFpnRois"], strict=True
    ):
        mask = nodes.add("Equal", [level, nodes.scalar(number, INDEX)])
        nodes.add("Compress", [boxes, mask], nodes.bind(out), axis=0)
        until = offsets_after(nodes, nodes.cast(mask, INDEX))
        offsets = nodes.add("Gather", [until, starts])
        nodes.add("Identity", [offsets], nodes.bind(_levels(op, "MultiFpnRois_lod")[number]))
        before = nodes.add("Slice", [until, nodes.constant([0]), nodes.constant([-1])])
        row = nodes.add("Add", [lower, before])
        restore = nodes.add("Where", [mask, row, restore])
        count = nodes.add("ReduceSum", [nodes.cast(mask, INDEX)], keepdims=0)
        lower = nodes.add("Add", [lower, count])
    restore = nodes.cast(column(nodes, restore), DType.INT32)
    nodes.add("Identity", [restore], nodes.output(op, "RestoreIndex"))


def _levels(op: Op, slot: str) -> dict[int, Any]:
    """The outputs of a slot by the level of the pyramid."""
    defn: Any = op.defn
    return dict(enumerate(op.outputs[slot], defn.min_level))


@converts("collect_fpn_proposals")
def collect_fpn_proposals(nodes: Nodes, op: Op) -> None:
    """The best boxes of all levels, image by image, and best first."""
    defn: Any = op.defn
    levels = [nodes.name(var) for var in op.inputs["MultiLevelRois_lod"]]
    rois, scores = (
        nodes.add("Concat", [nodes.name(var) for var in op.inputs[slot]], axis=0)
        for slot in ("MultiLevelRois", "MultiLevelScores")
    )
    image = nodes.add("Concat", [owners(nodes, offsets) for offsets in levels], axis=0)
    flat = nodes.add("Reshape", [scores, nodes.constant([-1])])
    _, best = _best(nodes, flat, int(defn.post_nms_topN), axis=0)
    image = nodes.add("Gather", [image, best])
    count = nodes.add("Shape", [best])
    rank = counted(nodes, nodes.add("Squeeze", [count]))
    key = nodes.add("Add", [nodes.add("Mul", [image, count]), rank])
    order = nodes.temporary("order")
    nodes.add_all("TopK", [key, count], [nodes.temporary("key"), order], axis=0, largest=0)
    nodes.add("Gather", [rois, nodes.add("Gather", [best, order])], nodes.output(op, "FpnRois"))
    images = nodes.add("Sub", [nodes.add("Shape", [levels[0]]), nodes.constant([1])])
    each = column(nodes, counted(nodes, nodes.add("Squeeze", [images])))
    is_own = nodes.cast(nodes.add("Equal", [each, image]), INDEX)
    counts = nodes.add("ReduceSum", [is_own, nodes.constant([1])], keepdims=0)
    _write_offsets(nodes, op, ["FpnRois_lod"], offsets_after(nodes, counts))


@converts("retinanet_detection_output")
def retinanet_detection_output(nodes: Nodes, op: Op) -> None:
    """The best codes of each level, decoded, clipped, and suppressed by a `Scan`, class by class.

    Candidates of an image are those of all levels [N, K], best first; of equal scores the lower
    class comes first.
    """
    defn: Any = op.defn
    dtype, info = op["BBoxes"].type.dtype, nodes.input(op, "ImInfo")
    count = len(op.inputs["Scores"])
    levels = [_candidates(nodes, op, level, level == count - 1) for level in range(count)]
    score, label, boxes = (nodes.add("Concat", each, axis=1) for each in zip(*levels, strict=True))
    scale = _of_info(nodes, info, [2])
    boxes = nodes.add("Div", [boxes, scale])
    size = nodes.add("Div", [_of_info(nodes, info, [1, 0, 1, 0]), scale])
    size = nodes.add("Floor", [nodes.add("Add", [size, nodes.scalar(0.5, dtype)])])
    boxes = _within(nodes, boxes, size, dtype)
    values, order = _best_of_labels(nodes, score, label)
    label = nodes.add("GatherElements", [label, order], axis=1)
    boxes = _boxes_at(nodes, boxes, order)
    is_left = nodes.add("Greater", [values, nodes.scalar(-np.inf, dtype)])
    one = nodes.constant([1])
    classes = nodes.size(op["Scores"].type.shape[2])
    classes = column(nodes, counted(nodes, nodes.add("Squeeze", [classes])))
    is_own = nodes.add("Equal", [nodes.add("Unsqueeze", [label, one]), classes])
    is_own = nodes.add("And", [is_own, nodes.add("Unsqueeze", [is_left, one])])
    sides = [nodes.add("Unsqueeze", [_side(nodes, boxes, side), one]) for side in range(4)]
    rule = Suppression(float(defn.nms_threshold), float(defn.nms_eta), False)
    kept = nodes.cast(rule.kept(nodes, sides, is_own, dtype), INDEX)
    is_left = nodes.cast(nodes.add("ReduceMax", [kept], axes=[1], keepdims=0), DType.BOOL)
    if int(defn.keep_top_k) > -1:
        is_left = _first(nodes, is_left, int(defn.keep_top_k))
    label = nodes.cast(nodes.add("Add", [label, nodes.scalar(1, INDEX)]), dtype)
    two = nodes.constant([2])
    columns = [nodes.add("Unsqueeze", [each, two]) for each in (label, values)]
    rows = nodes.add("Concat", [*columns, boxes], axis=2)
    rows = nodes.add("Reshape", [rows, nodes.constant([-1, 6])])
    mask = nodes.add("Reshape", [is_left, nodes.constant([-1])])
    nodes.add("Compress", [rows, mask], nodes.output(op, "Out"), axis=0)
    counts = nodes.add("ReduceSum", [nodes.cast(is_left, INDEX), one], keepdims=0)
    _write_offsets(nodes, op, ["Out_lod"], offsets_after(nodes, counts))


def _best_of_labels(nodes: Nodes, score: str, label: str) -> tuple[str, str]:
    """Scores [N, K], best first and of equal ones that of the lower class, and their places."""
    every = nodes.add("Shape", [label], start=1, end=2)
    numbers = counted(nodes, nodes.add("Squeeze", [every]))
    key = nodes.add("Add", [nodes.add("Mul", [label, every]), numbers])
    order = nodes.temporary("order")
    nodes.add_all("TopK", [key, every], [nodes.temporary("key"), order], axis=1, largest=0)
    score = nodes.add("GatherElements", [score, order], axis=1)
    values, best = nodes.temporary("values"), nodes.temporary("best")
    nodes.add_all("TopK", [score, every], [values, best], axis=1)
    return values, nodes.add("GatherElements", [order, best], axis=1)


def _candidates(nodes: Nodes, op: Op, level: int, is_last: bool) -> tuple[str, str, str]:
    """Scores, classes and decoded boxes of the best of a level [N, K]; -inf is the score of none.

    The last level has all positive scores as candidates.
    """
    defn: Any = op.defn
    scores, codes, anchors = (op.inputs[slot][level] for slot in ("Scores", "BBoxes", "Anchors"))
    dtype = scores.type.dtype
    flat = _by_image(nodes, nodes.name(scores), nodes.size(scores.type.shape[0]))
    least = nodes.scalar(0.0 if is_last else defn.score_threshold, dtype)
    is_candidate = nodes.add("Greater", [flat, least])
    flat = nodes.add("Where", [is_candidate, flat, nodes.scalar(-np.inf, dtype)])
    values, place = _best(nodes, flat, int(defn.nms_top_k), axis=1)
    classes = nodes.size(scores.type.shape[2])
    number, label = (nodes.add(kind, [place, classes]) for kind in ("Div", "Mod"))
    own = _boxes_at(nodes, nodes.name(codes), number)
    around = nodes.add("Gather", [nodes.name(anchors), number])
    return values, label, _decoded(nodes, around, own, dtype)


def _boxes_at(nodes: Nodes, boxes: str, place: str) -> str:
    """Boxes [N, M, 4] at places [N, K], as [N, K, 4]."""
    places = nodes.add("Unsqueeze", [place, nodes.constant([2])])
    fours = nodes.add("Expand", [places, nodes.constant([1, 1, 4])])
    return nodes.add("GatherElements", [boxes, fours], axis=1)


def _write_offsets(nodes: Nodes, op: Op, slots: list[str], offsets: str) -> None:
    """Write the LoD of results, which are one sequence for each image."""
    for slot in slots:
        for var in op.outputs.get(slot, []):
            nodes.add("Identity", [offsets], nodes.bind(var))


def _by_image(nodes: Nodes, name: str, images: str, width: int | None = None) -> str:
    """A value of images [N, …] as [N, M], or [N, M, width]."""
    last = [-1] if width is None else [-1, width]
    shape = nodes.add("Concat", [images, nodes.constant(last)], axis=0)
    return nodes.add("Reshape", [name, shape])


def _best(nodes: Nodes, name: str, most: int, axis: int) -> tuple[str, str]:
    """The largest values along the last axis, at most `most` unless that is 0, and their places."""
    limit = nodes.add("Shape", [name], start=axis, end=axis + 1)
    if most > 0:
        limit = nodes.add("Min", [limit, nodes.constant([most])])
    values, place = nodes.temporary("best"), nodes.temporary("place")
    nodes.add_all("TopK", [name, limit], [values, place], axis=axis)
    return values, place


def _first(nodes: Nodes, mask: str, most: int) -> str:
    """The first `most` places of each image that a mask [N, K] has."""
    numbers = nodes.add("CumSum", [nodes.cast(mask, INDEX), nodes.constant(np.array(1))])
    is_early = nodes.add("LessOrEqual", [numbers, nodes.scalar(most, INDEX)])
    return nodes.add("And", [mask, is_early])


def _side(nodes: Nodes, boxes: str, side: int) -> str:
    """A side of boxes [..., 4]."""
    return nodes.add("Gather", [boxes, nodes.scalar(side, INDEX)], axis=-1)


def _halves(nodes: Nodes, boxes: str) -> tuple[str, str]:
    """The first two and the last two entries of values [N, K, 4]."""
    zero, two, four, axis = (nodes.constant([number]) for number in (0, 2, 4, 2))
    return (
        nodes.add("Slice", [boxes, zero, two, axis]),
        nodes.add("Slice", [boxes, two, four, axis]),
    )


def _decoded(nodes: Nodes, anchors: str, codes: str, dtype: DType, largest: float = np.inf) -> str:
    """Boxes [N, K, 4] of codes relative to anchors, both ends inclusive; growth has a limit."""
    one, half = nodes.scalar(1, dtype), nodes.scalar(0.5, dtype)
    low, high = _halves(nodes, anchors)
    size = nodes.add("Add", [nodes.add("Sub", [high, low]), one])
    middle = nodes.add("Add", [low, nodes.add("Mul", [size, half])])
    shift, growth = _halves(nodes, codes)
    centre = nodes.add("Add", [nodes.add("Mul", [shift, size]), middle])
    if largest < np.inf:
        growth = nodes.add("Min", [growth, nodes.scalar(largest, dtype)])
    sides = nodes.add("Mul", [nodes.add("Mul", [nodes.add("Exp", [growth]), size]), half])
    end = nodes.add("Sub", [nodes.add("Add", [centre, sides]), one])
    return nodes.add("Concat", [nodes.add("Sub", [centre, sides]), end], axis=2)


def _of_info(nodes: Nodes, info: str, entries: list[int]) -> str:
    """Entries of ImInfo [N, 3] as [N, 1, entries]."""
    chosen = nodes.add("Gather", [info, nodes.constant(entries)], axis=1)
    return nodes.add("Unsqueeze", [chosen, nodes.constant([1])])


def _within(nodes: Nodes, boxes: str, size: str, dtype: DType) -> str:
    """Boxes [N, K, 4] within images of a size, which are width and height, twice [N, 1, 4]."""
    last = nodes.add("Sub", [size, nodes.scalar(1, dtype)])
    return nodes.add("Min", [nodes.add("Max", [boxes, nodes.scalar(0, dtype)]), last])


def _is_large_enough(nodes: Nodes, boxes: str, info: str, least: float, dtype: DType) -> str:
    """Whether boxes [N, K, 4] have their centre in the image, and a least size in the original."""
    one = nodes.scalar(1, dtype)
    low, high = _halves(nodes, boxes)
    sides = nodes.add("Sub", [high, low])
    half = nodes.add("Mul", [nodes.add("Add", [sides, one]), nodes.scalar(0.5, dtype)])
    middle = nodes.add("Add", [low, half])
    original = nodes.add("Add", [nodes.add("Div", [sides, _of_info(nodes, info, [2])]), one])
    is_large = nodes.add("GreaterOrEqual", [original, nodes.scalar(least, dtype)])
    is_inside = nodes.add("LessOrEqual", [middle, _of_info(nodes, info, [1, 0])])
    both = nodes.cast(nodes.add("And", [is_large, is_inside]), INDEX)
    return nodes.cast(nodes.add("ReduceMin", [both], axes=[2], keepdims=0), DType.BOOL)
