"""Decoding of a YOLOv3 head: `yolo_box`, its boxes and scores.

X is [N, anchors·(5 + classes), H, W]: at every position and for every anchor the centre of a box,
its sides, its objectness, and the classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection import yolo_box_kernels
from compiler.ops.image.layouts import require_images
from compiler.ops.type_checks import differ, require_dtype, shown


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def anchor_pairs(anchors: Sequence[int]) -> Array:
    """Return width and height of each anchor: [anchors, 2]."""
    return np.array(anchors, np.float64).reshape(-1, 2)


def predicted_boxes(head: Array, anchors: Array, scale: float, cells: int, size: Array) -> Array:
    """Return centre and sides of all boxes, [N, anchors, H, W, 4], as fractions of an image.

    `head` is [N, anchors, 5 + classes, H, W]; `cells` is the grid size, `size` [2] is that of the
    image the anchors are measured in.
    """
    rows, columns = np.indices(head.shape[3:])
    shift = -0.5 * (scale - 1)
    x = (columns + sigmoid(head[:, :, 0]) * scale + shift) / cells
    y = (rows + sigmoid(head[:, :, 1]) * scale + shift) / cells
    width = np.exp(head[:, :, 2]) * anchors[:, 0, None, None] / size[0]
    height = np.exp(head[:, :, 3]) * anchors[:, 1, None, None] / size[1]
    return np.stack([x, y, width, height], axis=-1)


class YoloBox(OpDef, op="yolo_box"):
    """Boxes [N, M, 4] in image coordinates, and Scores [N, M, classes] of them.

    There are M = anchors·H·W per image; those with objectness below `conf_thresh` are 0. ImgSize
    int32 [N, 2] is the height and width of the images, `clip_bbox` clips boxes to them.
    Reference: yolo_box_op.h.
    """

    X = reads(no_grad=True)
    ImgSize = reads(no_grad=True)
    Boxes = writes(shares_lod=False)
    Scores = writes(shares_lod=False)
    class_num: Attr[int] = required(int)
    anchors: Attr[list[int]] = required_list(int)
    downsample_ratio = attr(32, at_least(1))
    conf_thresh = attr(0.01)
    clip_bbox = attr(True)
    scale_x_y = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, ImgSize = s.X, s.ImgSize
        require_images(self.kind, "X", X)
        require_dtype(self.kind, "ImgSize", ImgSize, DType.INT32)
        count = require_head(self.kind, X, self.anchors, len(self.anchors) // 2, self.class_num)
        if ImgSize.rank != 2 or differ(ImgSize.shape[0], X.shape[0]) or differ(ImgSize.shape[1], 2):
            shapes = shown(X=X, ImgSize=ImgSize)
            raise ShapeError(f"yolo_box: {shapes}, expected a size per image")
        rows = (X.shape[0], X.shape[2] * X.shape[3] * count)
        boxes = X.with_shape((*rows, 4))
        return {"Boxes": boxes, "Scores": X.with_shape((*rows, self.class_num))}

    def numpy(self, X: Array, ImgSize: Array) -> dict[str, Array]:
        anchors, (height, width) = anchor_pairs(self.anchors), X.shape[2:]
        head = X.reshape(len(X), len(anchors), 5 + self.class_num, height, width)
        objectness = sigmoid(head[:, :, 4])[..., None]
        unlikely = objectness < self.conf_thresh
        size = np.array([self.downsample_ratio * height] * 2)
        values = predicted_boxes(head, anchors, self.scale_x_y, height, size)
        sides = ImgSize[:, None, None, None, ::-1].astype(np.float64)
        middle, half = values[..., :2] * sides, values[..., 2:] * sides / 2
        low, high = middle - half, middle + half
        if self.clip_bbox:
            low, high = np.maximum(low, 0), np.minimum(high, sides - 1)
        boxes = np.where(unlikely, 0, np.concatenate([low, high], axis=-1))
        scores = np.where(unlikely, 0, objectness) * sigmoid(np.moveaxis(head[:, :, 5:], 2, -1))
        rows = (len(X), len(anchors) * height * width)
        return {
            "Boxes": boxes.astype(X.dtype).reshape(*rows, 4),
            "Scores": scores.astype(X.dtype).reshape(*rows, self.class_num),
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        rows, size = X.shape[2], X.shape[2] * self.downsample_ratio
        anchors = [(float(w), float(h)) for w, h in anchor_pairs(self.anchors)]
        head = yolo_box_kernels.Head(X, anchors, self.class_num, self.scale_x_y, rows, size)
        if (Boxes := s.get("Boxes")) is not None:
            yolo_box_kernels.boxes(k, head, s.ImgSize, self.conf_thresh, self.clip_bbox, Boxes)
        if (Scores := s.get("Scores")) is not None:
            yolo_box_kernels.scores(k, head, self.conf_thresh, Scores)


def require_head(op: str, X: TensorType, anchors: Sequence[int], count: int, classes: int) -> int:
    """Return the number of anchors; raises unless X has 5 + classes channels for each."""
    if not anchors or len(anchors) % 2 or min(anchors) <= 0 or classes < 1:
        targets = "expected positive widths and heights, and at least one class"
        raise BadAttribute(f"{op}: anchors is {list(anchors)}, class_num {classes}, {targets}")
    if differ(X.shape[1], count * (5 + classes)):
        raise ShapeError(f"{op}: X is {X}, expected {count}·(5 + {classes}) channels")
    return count
