"""Mean average precision of object detection."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import shown


def overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box with others; a box is (left, top, right, bottom).

    >>> overlaps(np.array([0.0, 0.0, 1.0, 1.0]), np.array([[0.5, 0.0, 1.5, 1.0]])).round(3)
    array([0.333])
    """
    corner = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.maximum(corner, 0).prod(1)
    whole = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - shared
    return np.where(shared > 0, shared / np.where(whole > 0, whole, 1), 0)


def match_boxes(
    found: Array, boxes: Array, counts: Array, least: float
) -> tuple[list[int], list[bool]]:
    """Match the detections of one class, best first, to ground truth boxes, each matched once.

    Returns the indices of the detections counted, and whether each is correct. A detection that
    matches an ignored (difficult) box is not counted.
    """
    if not len(boxes):
        return list(range(len(found))), [False] * len(found)
    judged, right, taken = list[int](), list[bool](), set[int]()
    for index in np.argsort(-found[:, 1], kind="stable").tolist():
        shares = overlaps(found[index, 2:].clip(0, 1), boxes)
        best = int(shares.argmax())
        hit = bool(shares[best] > least)
        if hit and not counts[best]:
            continue
        judged.append(index)
        right.append(hit and best not in taken)
        taken |= {best} if hit else set()
    return judged, right


def average_precision(scores: Array, right: Array, count: int, way: str) -> float:
    """Return the average precision of one class: the area under the curve, or the 11-point mean."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / count
    if way == "integral":
        return float(precision @ np.diff(recall, prepend=0.0))
    levels = [precision[recall >= step / 10].max(initial=0.0) for step in range(11)]
    return float(np.mean(levels))


def mean_precision(
    scores: list[Array], right: list[Array], totals: Array, rated: list[int], way: str
) -> float:
    """Return the mean of `average_precision` over classes; 0 for classes without detections."""
    detected = [kind for kind in rated if len(scores[kind])]
    parts = [average_precision(scores[k], right[k], totals[k], way) for k in detected]
    return sum(parts) / len(rated) if parts else 0.0


def split_sequences(rows: Array, levels: list[Array]) -> list[Array]:
    """Split rows by sequence."""
    return np.split(rows, levels[-1][1:-1])


def require_equal_images(found: list[Array], true: list[Array]) -> None:
    """Raise ValueError unless detections and ground truth have the same number of images."""
    counts = [len(lod[-1]) - 1 for lod in (found, true)]
    if counts[0] != counts[1]:
        raise ValueError(
            f"DetectRes has the boxes of {counts[0]} images, Label those of {counts[1]}"
        )


def previous_state(
    HasState: Array | None,
    PosCount: Array | None,
    TruePos: Array | None,
    TruePos_lod: list[Array] | None,
    kinds: int,
) -> tuple[Array, list[Array], list[Array]]:
    """Return the accumulated ground truth counts by class, scores, and correctness flags.

    Raises ValueError unless there is one of each for every class.
    """
    nothing = [np.zeros(0, np.float32) for _ in range(kinds)]
    if HasState is None or not HasState.any() or PosCount is None or not TruePos_lod:
        return np.zeros(kinds, np.int64), nothing, list(nothing)
    counts = PosCount.size, len(TruePos_lod[-1]) - 1
    if counts != (kinds, kinds):
        raise ValueError(
            f"PosCount has the counts of {counts[0]} classes, TruePos the scores of {counts[1]}: "
            f"expected {kinds}, 'class_num'"
        )
    detections = np.zeros((0, 2)) if TruePos is None else TruePos
    scores, right = (
        split_sequences(column, TruePos_lod) for column in (detections[:, 0], detections[:, 1])
    )
    return PosCount.reshape(-1).astype(np.int64), scores, right


def classes_present(kinds: int, *columns: Array) -> list[int]:
    """Return the classes below `kinds` that occur in the columns, sorted."""
    values = np.unique(np.concatenate(columns))
    return [int(value) for value in values if value in range(kinds)]


class DetectionMap(OpDef, op="detection_map"):
    """MAP [1] = the mean over classes of the average precision of detected boxes.

    DetectRes is [detections, 6]: class, score, box; Label [boxes, 5]: class, box, or [boxes, 6]
    with a difficult flag after the class; both have LoD, a sequence per image. A detection is
    correct if its IoU with a ground truth box exceeds `overlap_threshold`. The counts of ground
    truth boxes by class and the scores of true and false positives (with LoD, a sequence per class)
    are accumulated onto PosCount, TruePos and FalsePos if HasState is not 0. Classes whose number
    of ground truth boxes equals `background_label` are omitted, as in the reference:
    detection_map_op.h.
    """

    no_kernel_reason = "detections are matched sequentially, with data-dependent counts"

    DetectRes = reads()
    Label = reads()
    HasState = reads(optional=True)
    PosCount = reads(optional=True)
    TruePos = reads(optional=True)
    FalsePos = reads(optional=True)
    DetectRes_lod = reads_lod("DetectRes")
    Label_lod = reads_lod("Label")
    TruePos_lod = reads_lod("TruePos", optional=True)
    AccumPosCount = writes()
    AccumTruePos = writes()
    AccumTruePos_lod = writes_lod("AccumTruePos")
    AccumFalsePos = writes()
    AccumFalsePos_lod = writes_lod("AccumFalsePos")
    MAP = writes()
    class_num = required(int, at_least(1))
    background_label = attr(0)
    overlap_threshold = attr(0.5)
    evaluate_difficult = attr(True)
    ap_type = attr("integral")

    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType | list[TensorType]]:
        DetectRes, Label = s.DetectRes, s.Label
        if self.ap_type not in ("integral", "11point"):
            raise BadAttribute(
                f"{self.kind}: 'ap_type' is {self.ap_type!r}, not 'integral' or '11point'"
            )
        shapes = shown(DetectRes=DetectRes, Label=Label)
        widths = DetectRes.shape[-1], Label.shape[-1]
        is_static = all(isinstance(width, int) for width in widths)
        if (DetectRes.rank, Label.rank) != (2, 2) or (is_static and widths not in ((6, 5), (6, 6))):
            raise ShapeError(f"{self.kind}: {shapes}, expected [found, 6] and [true, 5 or 6]")
        scores = TensorType(DType.FP32, (UNKNOWN, 2))
        classes = [TensorType(DType.INT64, (self.class_num + 1,))]
        return {
            "AccumPosCount": TensorType(DType.INT32, (self.class_num, 1)),
            "AccumTruePos": scores,
            "AccumTruePos_lod": classes,
            "AccumFalsePos": scores,
            "AccumFalsePos_lod": classes,
            "MAP": TensorType(DType.FP32, (1,)),
        }

    def numpy(
        self,
        DetectRes: Array,
        Label: Array,
        HasState: Array | None,
        PosCount: Array | None,
        TruePos: Array | None,
        DetectRes_lod: list[Array],
        Label_lod: list[Array],
        TruePos_lod: list[Array] | None,
    ) -> dict[str, Array | list[Array]]:
        kinds, least = self.class_num, self.overlap_threshold
        require_equal_images(DetectRes_lod, Label_lod)
        totals, scores, right = previous_state(HasState, PosCount, TruePos, TruePos_lod, kinds)
        difficult = Label[:, 1] != 0 if Label.shape[1] == 6 else np.zeros(len(Label), np.bool_)
        images = zip(
            split_sequences(DetectRes, DetectRes_lod),
            split_sequences(Label, Label_lod),
            split_sequences(~difficult | self.evaluate_difficult, Label_lod),
            strict=True,
        )
        for detections, true, counts in images:
            for kind in classes_present(kinds, detections[:, 0], true[:, 0]):
                mine, real = detections[detections[:, 0] == kind], true[:, 0] == kind
                judged, hits = match_boxes(mine, true[real, -4:], counts[real], least)
                totals[kind] += counts[real].sum()
                scores[kind] = np.append(scores[kind], mine[judged, 1])
                right[kind] = np.append(right[kind], hits)
        rated = [k for k in range(kinds) if totals[k] > 0 and totals[k] != self.background_label]
        mean = mean_precision(scores, right, totals, rated, self.ap_type)
        offsets = [np.cumsum([0, *map(len, scores)], dtype=np.int64)]
        every, hits = np.concatenate(scores), np.concatenate(right)
        return {
            "AccumPosCount": totals.astype(np.int32).reshape(-1, 1),
            "AccumTruePos": np.stack([every, hits], axis=1).astype(np.float32),
            "AccumTruePos_lod": offsets,
            "AccumFalsePos": np.stack([every, 1 - hits], axis=1).astype(np.float32),
            "AccumFalsePos_lod": offsets,
            "MAP": np.array([mean], np.float32),
        }
