"""Non-maximum suppression of detected boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported, declared
from compiler.codegen.onnx.sequences import counted, offsets_after
from compiler.ir.graph import Op
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

LAST = int(np.iinfo(np.int64).max)
EVERY = int(np.iinfo(np.int32).max)
INDEX = DType.INT64


@converts("multiclass_nms", "multiclass_nms2", "multiclass_nms3")
def multiclass_nms(nodes: Nodes, op: Op) -> None:
    """`NonMaxSuppression`, then the best `keep_top_k` of each image, class by class.

    If no box is left, `multiclass_nms` has the row [-1], the others have no row.
    """
    _write(nodes, op, _best_by_class(nodes, op))


@converts("locality_aware_nms")
def locality_aware_nms(nodes: Nodes, op: Op) -> None:
    """`multiclass_nms` of the boxes that a `Scan` merges with their neighbours."""
    if op["Scores"].type.shape[1] != 1:
        raise Unsupported("scores of several classes")
    if op["BBoxes"].type.shape[-1] != 4:
        raise Unsupported("polygons")
    boxes, scores = _merged(nodes, op)
    with nodes.renamed({op["BBoxes"]: boxes, op["Scores"]: scores}):
        _write(nodes, op, _best_by_class(nodes, op))


def _merged(nodes: Nodes, op: Op) -> tuple[str, str]:
    """Boxes [N, M, 4], each the mean of neighbours weighted by their scores, and the sums of these
    [N, 1, M]; -inf for boxes that became part of a later one.
    """
    dtype = op["Scores"].type.dtype
    images = nodes.size(op["Scores"].type.shape[0])
    one, four = nodes.constant([1]), nodes.constant([4])
    shape = nodes.add("Concat", [images, four], axis=0)
    start = nodes.add("Expand", [nodes.scalar(0, dtype), shape])
    nothing = nodes.add("Expand", [nodes.scalar(-np.inf, dtype), images])
    scores = nodes.add("Squeeze", [nodes.input(op, "Scores"), one])
    last, total, boxes, sums = map(nodes.temporary, ("last", "total", "boxes", "sums"))
    nodes.add_all(
        "Scan", [start, nothing, nodes.input(op, "BBoxes"), scores], [last, total, boxes, sums],
        body=_merge_step(nodes, op), num_scan_inputs=2, scan_input_axes=[1, 1],
        scan_output_axes=[1, 1],
    )  # fmt: skip
    boxes = nodes.add("Concat", [boxes, nodes.add("Unsqueeze", [last, one])], axis=1)
    sums = nodes.add("Concat", [sums, nodes.add("Unsqueeze", [total, one])], axis=1)
    end = nodes.constant([LAST])
    boxes, sums = (nodes.add("Slice", [name, one, end, one]) for name in (boxes, sums))
    return boxes, nodes.add("Unsqueeze", [sums, one])


def _merge_step(nodes: Nodes, op: Op) -> Any:
    """The body of the scan: merges a box into the last one, or ends that and begins another.

    States are the last box [N, 4] and its score [N]; results are the box that ended and its score,
    -inf if none did.
    """
    defn: Any = op.defn
    dtype = op["Scores"].type.dtype
    inner = Nodes(nodes.graph, nodes)
    last, total, box, score = map(inner.temporary, ("last", "total", "box", "score"))
    own, other = (
        [inner.add("Gather", [name, inner.scalar(side, INDEX)], axis=1) for side in range(4)]
        for name in (last, box)
    )
    iou = _overlaps(inner, own, other, dtype, 0.0 if defn.normalized else 1.0)
    none = inner.scalar(-np.inf, dtype)
    is_merged = inner.add("And", [
        inner.add("Greater", [iou, inner.scalar(defn.nms_threshold, dtype)]),
        inner.add("Greater", [total, none]),
    ])  # fmt: skip
    column = inner.constant([1])
    weighted = [
        inner.add("Mul", [each, inner.add("Unsqueeze", [weight, column])])
        for each, weight in ((box, score), (last, total))
    ]
    both = inner.add("Add", [score, total])
    mean = inner.add("Div", [inner.add("Add", weighted), inner.add("Unsqueeze", [both, column])])
    mask = inner.add("Unsqueeze", [is_merged, column])
    results = [
        inner.add("Where", [mask, mean, box]), inner.add("Where", [is_merged, both, score]),
        inner.add("Identity", [last]), inner.add("Where", [is_merged, none, total]),
    ]  # fmt: skip
    rows, line = [None, None], [None]
    entering, leaving = (
        [declared(name, dtype, sizes) for name, sizes in zip(names, (rows, line) * 2, strict=True)]
        for names in ((last, total, box, score), results)
    )
    return inner.body("merge", entering, leaving)


@converts("matrix_nms")
def matrix_nms(nodes: Nodes, op: Op) -> None:
    """Scores decayed by the overlaps with all better boxes of the class; the best, best first."""
    defn: Any = op.defn
    if op["BBoxes"].type.shape[-1] != 4:
        raise Unsupported("polygons")
    scores = op["Scores"]
    dtype = scores.type.dtype
    values, place, count = _best_first(nodes, op)
    decayed = nodes.add("Mul", [values, _decay(nodes, op, _sides(nodes, op, place), count)])
    is_left = nodes.add("And", [
        nodes.add("Greater", [values, nodes.scalar(defn.score_threshold, dtype)]),
        nodes.add("Greater", [decayed, nodes.scalar(defn.post_threshold, dtype)]),
    ])  # fmt: skip
    decayed = nodes.add("Where", [is_left, decayed, nodes.scalar(-np.inf, dtype)])
    flat, every = _of_images(nodes, op, _without_background(nodes, op, decayed), count)
    kept = _at_most(nodes, every, int(defn.keep_top_k))
    best, order = nodes.temporary("best"), nodes.temporary("order")
    nodes.add_all("TopK", [flat, kept], [best, order], axis=1)
    label = nodes.add("Div", [order, count])
    places, _ = _of_images(nodes, op, place, count)
    box = nodes.add("GatherElements", [places, order], axis=1)
    _write(nodes, op, _selected(nodes, op, best, label, box))


def _decay(nodes: Nodes, op: Op, sides: Sequence[str], count: str) -> str:
    """What the scores of candidates are multiplied by [N, C, K]: at most 1."""
    defn: Any = op.defn
    dtype = op["Scores"].type.dtype
    own = [nodes.add("Unsqueeze", [side, nodes.constant([3])]) for side in sides]
    other = [nodes.add("Unsqueeze", [side, nodes.constant([2])]) for side in sides]
    iou = _overlaps(nodes, own, other, dtype, 0.0 if defn.normalized else 1.0)
    ranks = counted(nodes, nodes.add("Squeeze", [count]))
    is_better = nodes.add("Less", [ranks, nodes.add("Unsqueeze", [ranks, nodes.constant([1])])])
    iou = nodes.add("Where", [is_better, iou, nodes.scalar(0, dtype)])
    largest = nodes.add("ReduceMax", [iou], axes=[3], keepdims=0)
    above = nodes.add("Unsqueeze", [largest, nodes.constant([2])])
    one = nodes.scalar(1, dtype)
    if defn.use_gaussian:
        squares = [nodes.add("Mul", [name, name]) for name in (above, iou)]
        sigma = nodes.scalar(defn.gaussian_sigma, dtype)
        decay = nodes.add("Exp", [nodes.add("Mul", [nodes.add("Sub", squares), sigma])])
    else:
        decay = nodes.add("Div", [nodes.add("Sub", [one, iou]), nodes.add("Sub", [one, above])])
    decay = nodes.add("Where", [is_better, decay, one])
    return nodes.add("Min", [nodes.add("ReduceMin", [decay], axes=[3], keepdims=0), one])


def _write(nodes: Nodes, op: Op, selected: _Selected) -> None:
    """Write the outputs of an op for the boxes that are left."""
    rows, counts = selected.rows(), selected.counts()
    if op.outputs.get("Index"):
        index = nodes.cast(selected.places_of_boxes, DType.INT32)
        nodes.add("Unsqueeze", [index, nodes.constant([1])], nodes.output(op, "Index"))
    if op.outputs.get("NmsRoisNum"):
        nodes.cast(counts, DType.INT32, nodes.output(op, "NmsRoisNum"))
    offsets = offsets_after(nodes, counts)
    if op.kind in ("multiclass_nms", "locality_aware_nms"):
        rows, offsets = _or_minus_one(nodes, rows, offsets, op["BBoxes"].type.dtype)
    nodes.add("Identity", [rows], nodes.output(op, "Out"))
    for slot in ("Out_lod", "Index_lod"):
        for var in op.outputs.get(slot, []):
            nodes.add("Identity", [offsets], nodes.bind(var))


@dataclass
class _Selected:
    """The boxes that are left; `labels`, `scores` and `places_of_boxes` have one entry for each."""

    nodes: Nodes
    boxes: str
    labels: str
    scores: str
    places_of_boxes: str
    is_left: str

    def rows(self) -> str:
        """Class, score and box of each [K, 6]."""
        nodes = self.nodes
        box = nodes.add("Gather", [self.boxes, self.places_of_boxes])
        columns = [nodes.add("Unsqueeze", [name, nodes.constant([1])])
                   for name in (self.labels, self.scores)]  # fmt: skip
        return nodes.add("Concat", [*columns, box], axis=1)

    def counts(self) -> str:
        """How many boxes each image has [N]."""
        ones = self.nodes.cast(self.is_left, DType.INT64)
        return self.nodes.add("ReduceSum", [ones, self.nodes.constant([1])], keepdims=0)


def _best_by_class(nodes: Nodes, op: Op) -> _Selected:
    """The boxes that are left in the order of their classes, best first.

    Raises Unsupported for boxes that differ from class to class, and for polygons.
    """
    defn: Any = op.defn
    if len(op["Scores"].type.shape) != 3:
        raise Unsupported("boxes that differ from class to class")
    if op["BBoxes"].type.shape[-1] != 4:
        raise Unsupported("polygons")
    by_node = defn.normalized and defn.nms_eta == 1
    alone = _suppressed(nodes, op) if by_node else _suppressed_in_order(nodes, op)
    count = nodes.size(op["Scores"].type.shape[2])
    flat, every = _of_images(nodes, op, _without_background(nodes, op, alone), count)
    kept = _at_most(nodes, every, int(defn.keep_top_k))
    best, place = nodes.temporary("best"), nodes.temporary("place")
    nodes.add_all("TopK", [flat, kept], [best, place], axis=1)
    label = nodes.add("Div", [place, count])
    rank = counted(nodes, nodes.add("Squeeze", [kept]))
    key = nodes.add("Add", [nodes.add("Mul", [label, kept]), rank])
    order = nodes.temporary("order")
    nodes.add_all("TopK", [key, kept], [nodes.temporary("key"), order], axis=1, largest=0)
    best, place, label = (
        nodes.add("GatherElements", [name, order], axis=1) for name in (best, place, label)
    )
    return _selected(nodes, op, best, label, nodes.add("Mod", [place, count]))


def _without_background(nodes: Nodes, op: Op, scores: str) -> str:
    """Scores [N, C, K] of which those of the background are -inf."""
    defn: Any = op.defn
    if int(defn.background_label) < 0:
        return scores
    labels = counted(nodes, nodes.add("Squeeze", [nodes.size(op["Scores"].type.shape[1])]))
    is_background = nodes.add("Equal", [labels, nodes.scalar(defn.background_label, INDEX)])
    mask = nodes.add("Unsqueeze", [is_background, nodes.constant([0, 2])])
    none = nodes.scalar(-np.inf, op["Scores"].type.dtype)
    return nodes.add("Where", [mask, none, scores])


def _of_images(nodes: Nodes, op: Op, name: str, count: str) -> tuple[str, str]:
    """A value [N, C, K] as [N, C · K], and C · K [1]; `count` is K."""
    images, classes, _ = op["Scores"].type.shape
    every = nodes.add("Mul", [nodes.size(classes), count])
    shape = nodes.add("Concat", [nodes.size(images), every], axis=0)
    return nodes.add("Reshape", [name, shape]), every


def _at_most(nodes: Nodes, every: str, most: int) -> str:
    """A number of boxes [1], at most `most` unless that is -1."""
    return every if most < 0 else nodes.add("Min", [every, nodes.constant([most])])


def _suppressed(nodes: Nodes, op: Op) -> str:
    """The scores [N, C, M] of the boxes that are left by `NonMaxSuppression`; -inf elsewhere."""
    defn: Any = op.defn
    scores = op["Scores"]
    name, dtype = nodes.name(scores), scores.type.dtype
    count, most = scores.type.shape[2], int(defn.nms_top_k)
    none = nodes.add("Expand", [nodes.scalar(-np.inf, dtype), nodes.add("Shape", [name])])
    candidates = name
    if most >= 0 and not (isinstance(count, int) and count <= most):
        values, place, _ = _best_first(nodes, op)
        candidates = nodes.add("ScatterElements", [none, place, values], axis=2)
    left = nodes.add("NonMaxSuppression", [
        nodes.input(op, "BBoxes"), candidates, nodes.constant([EVERY]),
        nodes.constant(np.array([defn.nms_threshold], np.float32)),
        nodes.constant(np.array([defn.score_threshold], np.float32)),
    ])  # fmt: skip
    return nodes.add("ScatterND", [none, left, nodes.add("GatherND", [name, left])])


def _suppressed_in_order(nodes: Nodes, op: Op) -> str:
    """The same by a `Scan` over the candidates of all classes, best first.

    `NonMaxSuppression` has no boxes of elements, which end behind their last one and overlap only
    if they touch, and no threshold that shrinks with each box.
    """
    defn: Any = op.defn
    scores = op["Scores"]
    name, dtype = nodes.name(scores), scores.type.dtype
    values, place, _ = _best_first(nodes, op)
    is_candidate = nodes.add("Greater", [values, nodes.scalar(defn.score_threshold, dtype)])
    counts = nodes.add("ReduceSum", [nodes.cast(is_candidate, INDEX), nodes.constant([2])])
    longest = nodes.add("Reshape", [nodes.add("ReduceMax", [counts]), nodes.constant([1])])
    longest = nodes.add("Max", [longest, nodes.constant([1])])  # ONNX Runtime aborts on no step
    values, place, is_candidate = (
        nodes.add("Slice", [each, nodes.constant([0]), longest, nodes.constant([2])])
        for each in (values, place, is_candidate)
    )
    rule = Suppression(defn.nms_threshold, defn.nms_eta, defn.normalized)
    is_kept = rule.kept(nodes, _sides(nodes, op, place), is_candidate, dtype)
    none = nodes.scalar(-np.inf, dtype)
    kept = nodes.add("Where", [is_kept, values, none])
    base = nodes.add("Expand", [none, nodes.add("Shape", [name])])
    return nodes.add("ScatterElements", [base, place, kept], axis=2)


@dataclass(frozen=True)
class Suppression:
    """Which boxes are dropped: those whose overlap with a better kept one is above `threshold`.

    While it is above 0.5, the threshold is multiplied by `eta` with each kept box. Boxes that are
    not `normalized` end behind their last element.
    """

    threshold: float
    eta: float
    normalized: bool

    @property
    def _extra(self) -> float:
        return 0.0 if self.normalized else 1.0

    def kept(self, nodes: Nodes, sides: Sequence[str], is_candidate: str, dtype: DType) -> str:
        """Whether each candidate [N, C, K] is kept: a `Scan` over K, best first.

        `sides` are the four sides of the candidates' boxes, each [N, C, K].
        """
        every = nodes.add("Shape", [is_candidate])
        overlap = nodes.add("Expand", [nodes.scalar(-np.inf, dtype), every])
        first = nodes.add("ReduceMax", [nodes.cast(is_candidate, INDEX)], axes=[2], keepdims=1)
        limit = nodes.scalar(self.threshold, dtype)
        threshold = nodes.add("Expand", [limit, nodes.add("Shape", [first])])
        count = nodes.add("Gather", [every, nodes.scalar(2, INDEX)])
        results = [nodes.temporary(name) for name in ("overlap", "threshold", "kept")]
        nodes.add_all(
            "Scan", [overlap, threshold, *sides, is_candidate, counted(nodes, count)], results,
            body=self._step(nodes, sides, dtype), num_scan_inputs=6,
            scan_input_axes=[2, 2, 2, 2, 2, 0], scan_output_axes=[2],
        )  # fmt: skip
        return results[2]

    def _step(self, nodes: Nodes, sides: Sequence[str], dtype: DType) -> Any:
        """The body of the scan: keeps one candidate of each class, if no better one overlaps it.

        States are the largest overlap of each candidate with those that were kept [N, C, K], and
        the threshold [N, C, 1]; the result says which are kept [N, C].
        """
        inner = Nodes(nodes.graph, nodes)
        overlap, threshold, is_candidate, number = map(
            inner.temporary, ("overlap", "threshold", "candidate", "number")
        )
        own = [inner.temporary("side") for _ in sides]
        one = [inner.add("Unsqueeze", [name, inner.constant([2])]) for name in own]
        iou = _overlaps(inner, one, sides, dtype, self._extra)
        mine = inner.add("Unsqueeze", [inner.add("Gather", [overlap, number], axis=2),
                                       inner.constant([2])])  # fmt: skip
        fits = inner.add("Not", [inner.add("Greater", [mine, threshold])])
        candidate = inner.add("Unsqueeze", [is_candidate, inner.constant([2])])
        kept = inner.add("And", [fits, candidate])
        larger = inner.add("Max", [overlap, iou])
        after = inner.add("Where", [kept, larger, overlap])
        shrinks = inner.add("Greater", [threshold, inner.scalar(0.5, dtype)])
        eta = inner.scalar(min(self.eta, 1.0), dtype)
        smaller = inner.add("Mul", [threshold, eta])
        limit = inner.add("Where", [inner.add("And", [kept, shrinks]), smaller, threshold])
        result = inner.add("Squeeze", [kept, inner.constant([2])])
        table, column = [None, None, None], [None, None]
        entering = [
            declared(overlap, dtype, table), declared(threshold, dtype, table),
            *(declared(name, dtype, column) for name in own),
            declared(is_candidate, DType.BOOL, column), declared(number, INDEX, []),
        ]  # fmt: skip
        leaving = [
            declared(after, dtype, table), declared(limit, dtype, table),
            declared(result, DType.BOOL, column),
        ]  # fmt: skip
        return inner.body("suppress", entering, leaving)


def _best_first(nodes: Nodes, op: Op) -> tuple[str, str, str]:
    """The `nms_top_k` largest scores of each class [N, C, K], their boxes, and K [1]."""
    defn: Any = op.defn
    scores, most = op["Scores"], int(defn.nms_top_k)
    every = nodes.size(scores.type.shape[2])
    limit = _at_most(nodes, every, most)
    values, place = nodes.temporary("best"), nodes.temporary("place")
    nodes.add_all("TopK", [nodes.name(scores), limit], [values, place], axis=2)
    return values, place, limit


def _sides(nodes: Nodes, op: Op, place: str) -> list[str]:
    """The four sides of the boxes of candidates, each [N, C, K]."""
    classes = nodes.size(op["Scores"].type.shape[1])
    times = nodes.add("Concat", [nodes.constant([1]), classes, nodes.constant([1])], axis=0)
    sides: list[str] = []
    for side in range(4):
        column = nodes.add("Gather", [nodes.input(op, "BBoxes"), nodes.scalar(side, INDEX)], axis=2)
        table = nodes.add("Unsqueeze", [column, nodes.constant([1])])
        table = nodes.add("Tile", [table, times])
        sides.append(nodes.add("GatherElements", [table, place], axis=2))
    return sides


def _overlaps(
    nodes: Nodes, one: Sequence[str], other: Sequence[str], dtype: DType, extra: float
) -> str:
    """Intersection over union of boxes by their sides; 0 unless they touch."""
    zero, more = nodes.scalar(0, dtype), nodes.scalar(extra, dtype)
    lengths: list[str] = []
    touches: list[str] = []
    for low, high in ((0, 2), (1, 3)):
        end = nodes.add("Min", [one[high], other[high]])
        length = nodes.add("Sub", [end, nodes.add("Max", [one[low], other[low]])])
        touches.append(nodes.add("GreaterOrEqual", [length, zero]))
        lengths.append(nodes.add("Add", [length, more]))
    both = nodes.add("Mul", lengths)
    areas = [
        nodes.add("Mul", [
            nodes.add("Add", [nodes.add("Sub", [box[high], box[low]]), more])
            for low, high in ((0, 2), (1, 3))
        ])
        for box in (one, other)
    ]  # fmt: skip
    union = nodes.add("Sub", [nodes.add("Add", areas), both])
    is_point = nodes.add("Equal", [union, zero])
    share = nodes.add("Div", [both, nodes.add("Where", [is_point, nodes.scalar(1, dtype), union])])
    return nodes.add("Where", [nodes.add("And", touches), share, zero])


def _selected(nodes: Nodes, op: Op, best: str, label: str, box: str) -> _Selected:
    """Those boxes of each image [N, K] whose score is not -inf."""
    boxes, dtype = op["BBoxes"], op["Scores"].type.dtype
    is_left = nodes.add("Greater", [best, nodes.scalar(-np.inf, dtype)])
    images, count = (nodes.size(size) for size in boxes.type.shape[:2])
    first = nodes.add("Mul", [counted(nodes, nodes.add("Squeeze", [images])), count])
    box = nodes.add("Add", [box, nodes.add("Unsqueeze", [first, nodes.constant([1])])])
    line = nodes.constant([-1])
    mask = nodes.add("Reshape", [is_left, line])
    label, best, box = (
        nodes.add("Compress", [nodes.add("Reshape", [name, line]), mask], axis=0)
        for name in (label, best, box)
    )
    every = nodes.add("Reshape", [nodes.name(boxes), nodes.constant([-1, 4])])
    return _Selected(nodes, every, nodes.cast(label, dtype), best, box, is_left)


def _or_minus_one(nodes: Nodes, rows: str, offsets: str, dtype: DType) -> tuple[str, str]:
    """Rows and offsets, or [[-1]] of one image if there are no rows."""
    count = nodes.add("Shape", [rows], start=0, end=1)
    is_empty = nodes.add("Equal", [count, nodes.constant([0])])
    one = nodes.cast(is_empty, DType.INT64)
    more = nodes.add("Concat", [rows, nodes.constant(np.full((1, 6), -1, dtype.numpy))], axis=0)
    width = nodes.add("Where", [is_empty, nodes.constant([1]), nodes.constant([6])])
    ends = nodes.add("Concat", [nodes.add("Add", [count, one]), width], axis=0)
    rows = nodes.add("Slice", [more, nodes.constant([0, 0]), ends])
    images = nodes.add("Shape", [offsets], start=0, end=1)
    end = nodes.add("Where", [is_empty, nodes.constant([2]), images])
    offsets = nodes.add("Slice", [offsets, nodes.constant([0]), end])
    numbers = counted(nodes, nodes.add("Squeeze", [end]))
    return rows, nodes.add("Add", [offsets, nodes.add("Min", [numbers, one])])
