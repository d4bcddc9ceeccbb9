"""Training targets of the mask branch of a detector: `generate_mask_labels`, polygons as masks."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import Attr, OpDef, Slots, reads, reads_lod, required, writes, writes_lod
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection.box_coder import overlaps, require_boxes
from compiler.ops.detection.nms import lod_offsets
from compiler.ops.type_checks import differ, require_dtype

FINER = 5
"""Factor by which the grid that outlines are rasterised on is finer than the mask."""


def outline(points: Array) -> tuple[Array, Array]:
    """Rasterise the outline of a polygon on a fine grid: consecutive columns and rows."""
    corners = (FINER * points + 0.5).astype(np.int64)
    columns: list[Array] = []
    rows: list[Array] = []
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        wide, tall = (int(size) for size in np.abs(end - start))
        long = 0 if wide >= tall else 1
        is_reversed = start[long] > end[long]
        first, last = (end, start) if is_reversed else (start, end)
        steps = np.arange(max(wide, tall) + 1)
        steps = steps[::-1] if is_reversed else steps
        slope = (last[1 - long] - first[1 - long]) / max(wide, tall, 1)
        other = (first[1 - long] + slope * steps + 0.5).astype(np.int64)
        position = (steps + first[long], other)
        columns.append(position[long])
        rows.append(position[1 - long])
    return np.concatenate(columns), np.concatenate(rows)


def polygon_mask(points: Array, size: int) -> Array:
    """Return a mask [size, size] of the interior of a polygon [corners, 2], in mask coordinates.

    As in COCO's tools: in each column, outline crossings start and end runs, from the top down.
    """
    u, v = outline(points)
    before, after = u[:-1], u[1:]
    column = (np.where(after < before, after, after - 1) + 0.5) / FINER - 0.5
    row = (np.minimum(v[:-1], v[1:]) + 0.5) / FINER - 0.5
    row = np.ceil(np.clip(row, 0, size))
    valid = (after != before) & (np.floor(column) == column) & (column >= 0) & (column < size)
    crossings = np.zeros(size * size + 1, np.int64)
    np.add.at(crossings, (column[valid] * size + row[valid]).astype(np.int64), 1)
    return (np.cumsum(crossings[:-1]) % 2).reshape(size, size).T


def box_mask(polygons: list[Array], box: Array, size: int) -> Array:
    """Return a mask of the part of a box that polygons cover."""
    sides = np.maximum(box[2:] - box[:2], 1)
    masks = [polygon_mask((polygon - box[:2]) * size / sides, size) for polygon in polygons]
    return (np.add.reduce(masks) > 0).astype(np.int32)


def bounds(polygons: list[Array]) -> Array:
    """Return the bounding box of polygons."""
    points = np.concatenate(polygons)
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


class GenerateMaskLabels(OpDef, op="generate_mask_labels"):
    """MaskInt32 [K, num_classes·resolution²] = a mask for the class of each foreground box.

    Rois [R, 4] in coordinates of the scaled image and LabelsInt32 [R, 1] are in one sequence per
    image, as GtClasses and IsCrowd [G, 1]; GtSegms [points, 2] has three LoD levels: images,
    objects and polygons. ImInfo [N, 3] is height, width and scale. The mask is that of the object
    whose bounding box overlaps most; other classes are -1. MaskRois are the boxes, RoiHasMaskInt32
    their indices. An image without such boxes yields its first background box, all -1. Reference:
    generate_mask_labels_op.cc.
    """

    no_kernel_reason = "polygons have data-dependent lengths"

    ImInfo = reads(no_grad=True)
    GtClasses = reads(no_grad=True)
    IsCrowd = reads(no_grad=True)
    GtSegms = reads(no_grad=True)
    GtSegms_lod = reads_lod("GtSegms")
    Rois = reads(no_grad=True)
    Rois_lod = reads_lod("Rois")
    LabelsInt32 = reads(no_grad=True)
    MaskRois = writes()
    MaskRois_lod = writes_lod("MaskRois")
    RoiHasMaskInt32 = writes()
    RoiHasMaskInt32_lod = writes_lod("RoiHasMaskInt32")
    MaskInt32 = writes()
    MaskInt32_lod = writes_lod("MaskInt32")
    num_classes: Attr[int] = required(int)
    resolution: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        GtSegms = s.GtSegms
        require_boxes(self.kind, "Rois", s.Rois)
        require_dtype(self.kind, "LabelsInt32", s.LabelsInt32, DType.INT32)
        if GtSegms.rank != 2 or differ(GtSegms.shape[1], 2):
            raise ShapeError(f"{self.kind}: GtSegms is {GtSegms}, expected points [total, 2]")
        if min(self.num_classes, self.resolution) < 1:
            actual = f"num_classes and resolution are {self.num_classes} and {self.resolution}"
            raise BadAttribute(f"{self.kind}: {actual}, expected at least 1")
        width = self.num_classes * self.resolution * self.resolution
        offsets = [TensorType(DType.INT64, (s.ImInfo.shape[0] + 1,))]
        return {
            "MaskRois": s.Rois.with_shape((UNKNOWN, 4)),
            "MaskRois_lod": offsets,
            "RoiHasMaskInt32": TensorType(DType.INT32, (UNKNOWN, 1)),
            "RoiHasMaskInt32_lod": offsets,
            "MaskInt32": TensorType(DType.INT32, (UNKNOWN, width)),
            "MaskInt32_lod": offsets,
        }

    def numpy(
        self,
        ImInfo: Array,
        GtClasses: Array,
        IsCrowd: Array,
        GtSegms: Array,
        GtSegms_lod: list[Array],
        Rois: Array,
        Rois_lod: list[Array],
        LabelsInt32: Array,
    ) -> dict[str, object]:
        objects, starts = GtSegms_lod[0], Rois_lod[-1]
        valid = (GtClasses.reshape(-1) > 0) & (IsCrowd.reshape(-1) == 0)
        rois: list[Array] = []
        numbers: list[Array] = []
        masks: list[Array] = []
        for image, info in enumerate(ImInfo):
            image_rows = slice(starts[image], starts[image + 1])
            boxes, labels = Rois[image_rows], LabelsInt32[image_rows].reshape(-1)
            chosen = np.flatnonzero(labels > 0)
            among = range(int(objects[image]), int(objects[image + 1]))
            shapes = [object_polygons(GtSegms, GtSegms_lod, i) for i in among if valid[i]]
            if len(chosen) and shapes:
                image_masks = object_masks(boxes[chosen] / info[2], shapes, self.resolution)
            else:
                chosen = np.flatnonzero(labels == 0)[:1]
                image_masks = np.full((len(chosen), self.resolution, self.resolution), -1, np.int32)
            rois.append(boxes[chosen])
            numbers.append(chosen[:, None])
            masks.append(scatter_to_classes(image_masks, labels[chosen], self.num_classes))
        offsets = [lod_offsets(rois)]
        return {
            "MaskRois": np.concatenate(rois),
            "MaskRois_lod": offsets,
            "RoiHasMaskInt32": np.concatenate(numbers).astype(np.int32),
            "RoiHasMaskInt32_lod": offsets,
            "MaskInt32": np.concatenate(masks),
            "MaskInt32_lod": offsets,
        }


def object_polygons(points: Array, lod: list[Array], number: int) -> list[Array]:
    """Return the polygons of one object."""
    _, objects, polygons = lod
    among = range(int(objects[number]), int(objects[number + 1]))
    return [points[polygons[i] : polygons[i + 1]] for i in among]


def object_masks(boxes: Array, shapes: list[list[Array]], size: int) -> Array:
    """Return a mask [K, size, size] in each box of the object whose bounding box overlaps most."""
    iou = overlaps(boxes, np.stack([bounds(shape) for shape in shapes]), 1.0)
    result: list[Array] = []
    for number, box in enumerate(boxes):
        best = int(iou[number].argmax())
        result.append(box_mask(shapes[best], box, size))
    return np.stack(result)


def scatter_to_classes(masks: Array, labels: Array, classes: int) -> Array:
    """Scatter masks to their class, -1 for the others: [K, classes·size²]."""
    result = np.full((len(masks), classes, *masks.shape[1:]), -1, np.int32)
    rows = np.flatnonzero(labels > 0)
    result[rows, labels[rows]] = masks[rows]
    return result.reshape(len(masks), int(np.prod(result.shape[1:])))
