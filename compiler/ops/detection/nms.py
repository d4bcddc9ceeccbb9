"""Non-maximum suppression ops. None has a gradient.

The number of detections depends on the data; they are one sequence per image, each row the class,
the score and the box.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import (
    Attr,
    OpDef,
    Slots,
    attr,
    reads,
    reads_lod,
    required,
    writes,
    writes_lod,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.box_coder import require_boxes
from compiler.ops.detection.nms_classes_numpy import best_of_classes
from compiler.ops.detection.nms_numpy import (
    best_first,
    decayed_scores,
    merge_neighbours,
    smallest_first,
)
from compiler.ops.type_checks import differ, shown

POLYGONS = (8, 16, 24, 32)
"""Numbers per polygon: x and y of 4, 8, 12 or 16 corners."""
NO_OFFSETS = TensorType(DType.INT64, (UNKNOWN,))
"""Type of the offsets, which are those of a single image if no box is kept."""


class Detections(OpDef):
    """Out [K, 6]: class, score and box of the detections kept from BBoxes with Scores.

    BBoxes are [N, M, 4] and Scores [N, C, M]; or [M, C, 4] in one sequence per image, and [M, C].
    With Scores of rank 3 boxes may be polygons, [N, M, 8] and so on, and Out is [K, 10] then.
    """

    BBoxes = reads(no_grad=True)
    BBoxes_lod = reads_lod("BBoxes", optional=True)
    Scores = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    background_label = attr(0)
    score_threshold: Attr[float] = required(float)
    nms_top_k: Attr[int] = required(int)
    keep_top_k: Attr[int] = required(int)
    normalized = attr(True)
    takes_polygons: ClassVar[bool] = True

    def kept(
        self, BBoxes: TensorType, BBoxes_lod: list[TensorType], Scores: TensorType
    ) -> dict[str, object]:
        """Return the types of Out and its LoD; raises ShapeError for incompatible inputs."""
        both_rank_3 = BBoxes.rank == 3 and Scores.rank == 3
        polygons = self.takes_polygons and both_rank_3 and BBoxes.shape[-1] in POLYGONS
        if not polygons or not BBoxes.dtype.is_float:
            require_boxes(self.kind, "BBoxes", BBoxes)
        pairs = ((0, 0), (1, 2)) if Scores.rank == 3 else ((0, 0), (1, 1))
        wrong = Scores.rank not in (2, 3) or BBoxes.rank != 3
        if wrong or any(differ(BBoxes.shape[a], Scores.shape[b]) for a, b in pairs):
            shapes = shown(BBoxes=BBoxes, Scores=Scores)
            raise ShapeError(f"{self.kind}: {shapes} are incompatible")
        images = Scores.shape[0]
        if Scores.rank == 2:
            images = BBoxes_lod[-1].shape[0] - 1 if BBoxes_lod else UNKNOWN
        offsets = TensorType(DType.INT64, (images + 1,))
        width = BBoxes.shape[-1] + 2 if polygons else 6
        return {"Out": BBoxes.with_shape((UNKNOWN, width)), "Out_lod": [offsets]}


def split_images(
    boxes: Array, scores: Array, lod: list[Array] | None
) -> list[tuple[Array, Array, int]]:
    """Return for each image its boxes, its scores [C, M], and the index of its first box.

    Raises ValueError if scores have rank 2 and no LoD assigns rows to images.
    """
    if scores.ndim == 3:
        return [(boxes[i], scores[i], i * boxes.shape[1]) for i in range(len(scores))]
    if not lod:
        raise ValueError("boxes [M, C, 4] need sequence lengths that assign each to an image")
    starts = lod[-1]
    return [
        (boxes[starts[i] : starts[i + 1]], scores[starts[i] : starts[i + 1]].T, int(starts[i]))
        for i in range(len(starts) - 1)
    ]


def detection_rows(boxes: Array, scores: Array, label: Array, number: Array) -> Array:
    """Return class, score and box of the selected boxes of one image."""
    chosen = boxes[number] if boxes.ndim == 2 else boxes[number, label]
    columns = [label[:, None], scores[label, number][:, None], chosen]
    return np.concatenate(columns, axis=1).astype(boxes.dtype)


def lod_offsets(parts: list[Array]) -> Array:
    """Return the LoD offsets of rows per image."""
    return np.cumsum([0, *[len(part) for part in parts]], dtype=np.int64)


def rows_of_images(parts: list[Array], width: int, dtype: np.dtype) -> Array:
    """Join rows per image, [rows, width] each, of a dtype; there may be no images."""
    return np.concatenate([np.empty((0, width), dtype), *parts])


def detections(result: list[Array], dtype: np.dtype) -> dict[str, object]:
    """Return the rows of all images with their LoD, or a single -1 if there are none."""
    if any(map(len, result)):
        return {"Out": np.concatenate(result), "Out_lod": [lod_offsets(result)]}
    return {"Out": np.full((1, 1), -1, dtype), "Out_lod": [np.array([0, 1])]}


class MulticlassNms(Detections, op="multiclass_nms"):
    """Non-maximum suppression per class; then at most `keep_top_k` boxes per image.

    If no box is kept, Out is [[-1]]. Reference: multiclass_nms_op.cc.
    """

    no_kernel_reason = "boxes are suppressed sequentially"

    nms_threshold = attr(0.3)
    nms_eta = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        return {**self.kept(s.BBoxes, s.all("BBoxes_lod"), s.Scores), "Out_lod": [NO_OFFSETS]}

    def numpy(
        self, BBoxes: Array, BBoxes_lod: list[Array] | None, Scores: Array
    ) -> dict[str, object]:
        limits = (self.score_threshold, self.nms_threshold, self.nms_eta, self.nms_top_k)
        options = (self.background_label, self.normalized, Scores.ndim == 2)
        result: list[Array] = []
        for boxes, scores, _ in split_images(BBoxes, Scores, BBoxes_lod):
            selected = best_of_classes(boxes, scores, limits, self.keep_top_k, options)
            result.append(detection_rows(boxes, scores, *selected))
        return detections(result, BBoxes.dtype)


class IndexedNms(Detections):
    """Non-maximum suppression with Index [K, 1], the indices of kept boxes in the batch."""

    Index = writes()
    Index_lod = writes_lod("Index")
    nms_threshold = attr(0.3)
    nms_eta = attr(1.0)

    def both(
        self, BBoxes: TensorType, BBoxes_lod: list[TensorType], Scores: TensorType
    ) -> dict[str, object]:
        """Return the types of Out and Index."""
        result = self.kept(BBoxes, BBoxes_lod, Scores)
        index = TensorType(DType.INT32, (UNKNOWN, 1))
        return {**result, "Index": index, "Index_lod": result["Out_lod"]}


def indexed_nms(
    BBoxes: Array,
    BBoxes_lod: list[Array] | None,
    Scores: Array,
    limits: tuple[float, float, float, int],
    keep: int,
    options: tuple[int, bool, bool],
) -> tuple[dict[str, object], Array]:
    """Return the outputs by slot, and the number of kept boxes per image."""
    result: list[Array] = []
    positions: list[Array] = []
    for boxes, scores, first in split_images(BBoxes, Scores, BBoxes_lod):
        label, number = best_of_classes(boxes, scores, limits, keep, options)
        result.append(detection_rows(boxes, scores, label, number))
        per_class = len(scores) if boxes.ndim == 3 else 1
        positions.append((first + number) * per_class + (label if boxes.ndim == 3 else 0))
    rows = rows_of_images(result, BBoxes.shape[-1] + 2, BBoxes.dtype)
    index = np.concatenate([np.empty(0, np.int32), *positions]).astype(np.int32)[:, None]
    offsets = lod_offsets(result)
    slots: dict[str, object] = {"Out": rows, "Index": index}
    slots |= {"Out_lod": [offsets], "Index_lod": [offsets]}
    return slots, np.diff(offsets).astype(np.int32)


class MulticlassNms2(IndexedNms, op="multiclass_nms2"):
    """`multiclass_nms` with the Index of the kept boxes."""

    no_kernel_reason = "boxes are suppressed sequentially"

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        return self.both(s.BBoxes, s.all("BBoxes_lod"), s.Scores)

    def numpy(
        self, BBoxes: Array, BBoxes_lod: list[Array] | None, Scores: Array
    ) -> dict[str, object]:
        limits = (self.score_threshold, self.nms_threshold, self.nms_eta, self.nms_top_k)
        options = (self.background_label, self.normalized, Scores.ndim == 2)
        return indexed_nms(BBoxes, BBoxes_lod, Scores, limits, self.keep_top_k, options)[0]


class MulticlassNms3(IndexedNms, op="multiclass_nms3"):
    """`multiclass_nms2` of 2.x: RoisNum instead of LoD, and NmsRoisNum as an additional output."""

    no_kernel_reason = "boxes are suppressed sequentially"

    RoisNum = reads(optional=True, no_grad=True)
    NmsRoisNum = writes(optional=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Scores = s.Scores
        RoisNum = s.get("RoisNum")
        result = self.both(s.BBoxes, s.all("BBoxes_lod"), Scores)
        images = Scores.shape[0] if Scores.rank == 3 else UNKNOWN
        images = images if RoisNum is None else RoisNum.shape[0]
        return {**result, "NmsRoisNum": TensorType(DType.INT32, (images,))}

    def numpy(
        self,
        BBoxes: Array,
        BBoxes_lod: list[Array] | None,
        Scores: Array,
        RoisNum: Array | None,
    ) -> dict[str, object]:
        limits = (self.score_threshold, self.nms_threshold, self.nms_eta, self.nms_top_k)
        options = (self.background_label, self.normalized, Scores.ndim == 2)
        lod = BBoxes_lod if RoisNum is None else [np.cumsum([0, *RoisNum.reshape(-1)])]
        slots, counts = indexed_nms(BBoxes, lod, Scores, limits, self.keep_top_k, options)
        return {**slots, "NmsRoisNum": counts}


class LocalityAwareNms(Detections, op="locality_aware_nms"):
    """`multiclass_nms` of boxes that are first merged with their neighbours in the list.

    Consecutive boxes that overlap by more than `nms_threshold` become one, weighted by their
    scores, which add up. Scores are [N, 1, M]. BBoxes may be polygons instead, [N, M, 8] and so on:
    x and y of 4, 8, 12 or 16 corners. Reference: locality_aware_nms_op.cc.
    """

    no_kernel_reason = "boxes are merged and suppressed sequentially"

    background_label = attr(-1)
    nms_threshold = attr(0.3)
    nms_eta = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Scores = s.Scores
        if Scores.rank != 3:
            raise ShapeError(f"locality_aware_nms: Scores is {Scores}, expected [N, 1, M]")
        return {**self.kept(s.BBoxes, s.all("BBoxes_lod"), Scores), "Out_lod": [NO_OFFSETS]}

    def numpy(self, BBoxes: Array, Scores: Array) -> dict[str, object]:
        limits = (self.score_threshold, self.nms_threshold, self.nms_eta, self.nms_top_k)
        options = (self.background_label, self.normalized, False)
        result: list[Array] = []
        for boxes, scores in zip(BBoxes.copy(), Scores.copy(), strict=True):
            for class_scores in scores:
                merge_neighbours(boxes, class_scores, self.nms_threshold, self.normalized)
            selected = best_of_classes(boxes, scores, limits, self.keep_top_k, options)
            result.append(detection_rows(boxes, scores, *selected))
        return detections(result, BBoxes.dtype)


class MatrixNms(Detections, op="matrix_nms"):
    """Matrix NMS: boxes whose scores, decayed by overlaps, exceed `post_threshold`.

    BBoxes are [N, M, 4] and Scores [N, C, M]; Index [K, 1] is the index in the batch.
    Reference: matrix_nms_op.cc.
    """

    no_kernel_reason = "the number of kept boxes is data-dependent"
    takes_polygons = False

    Index = writes()
    Index_lod = writes_lod("Index")
    post_threshold = attr(0.0)
    use_gaussian = attr(False)
    gaussian_sigma = attr(2.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Scores = s.Scores
        if Scores.rank != 3:
            raise ShapeError(f"matrix_nms: Scores is {Scores}, expected [N, C, M]")
        result = self.kept(s.BBoxes, s.all("BBoxes_lod"), Scores)
        index = TensorType(DType.INT32, (UNKNOWN, 1))
        return {**result, "Index": index, "Index_lod": result["Out_lod"]}

    def numpy(self, BBoxes: Array, Scores: Array) -> dict[str, object]:
        result: list[Array] = []
        positions: list[Array] = []
        options = (self.gaussian_sigma, self.use_gaussian, self.normalized)
        for image, (boxes, scores) in enumerate(zip(BBoxes, Scores, strict=True)):
            parts: list[Array] = [np.empty((0, 7))]
            for label, class_scores in enumerate(scores):
                order = best_first(class_scores, self.score_threshold, self.nms_top_k)
                if label == self.background_label or not len(order):
                    continue
                lowered = decayed_scores(boxes[order], class_scores[order], *options)
                mask = lowered > self.post_threshold
                number = order[mask][:, None]
                rows = [np.full(number.shape, label), lowered[mask][:, None], boxes[number[:, 0]]]
                parts.append(np.concatenate([*rows, number + image * len(boxes)], axis=1))
            detections = np.concatenate(parts)
            best = smallest_first(-detections[:, 1], self.keep_top_k)
            result.append(detections[best, :6].astype(BBoxes.dtype))
            positions.append(detections[best, 6:].astype(np.int32))
        offsets = lod_offsets(result)
        slots = {
            "Out": rows_of_images(result, 6, BBoxes.dtype),
            "Index": rows_of_images(positions, 1, np.dtype(np.int32)),
        }
        return {**slots, "Out_lod": [offsets], "Index_lod": [offsets]}
