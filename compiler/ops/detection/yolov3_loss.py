"""Training loss of a YOLOv3 head: `yolov3_loss`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection import yolov3_loss_kernels
from compiler.ops.detection.yolo_box import anchor_pairs, predicted_boxes, require_head, sigmoid
from compiler.ops.detection.yolo_box_kernels import Head
from compiler.ops.detection.yolov3_loss_kernels import Truth
from compiler.ops.image.layouts import require_images
from compiler.ops.math.axes import check_optional_indices
from compiler.ops.type_checks import differ, require_dtype, shapes_differ, shown

SMALLEST = 1e-6
"""Ground-truth boxes with a side up to this are padding."""
COUNTS = 1e-5
"""Objectness mask above this: a ground-truth box; below -0.5: ignored."""
SMOOTHEST = 1 / 40
"""Maximum label smoothing."""


def centred_overlaps(one: Array, other: Array) -> Array:
    """Return the intersection over union of boxes (centre, sides), broadcast."""
    low = np.maximum(one[..., :2] - one[..., 2:] / 2, other[..., :2] - other[..., 2:] / 2)
    high = np.minimum(one[..., :2] + one[..., 2:] / 2, other[..., :2] + other[..., 2:] / 2)
    intersection = np.maximum(high - low, 0).prod(axis=-1)
    union = one[..., 2:].prod(axis=-1) + other[..., 2:].prod(axis=-1) - intersection
    return intersection / np.where(union > 0, union, 1)


def binary_cross_entropy(x: Array, label: Array) -> Array:
    """Return -label·log(p) - (1 - label)·log(1 - p) for p = sigmoid(x)."""
    return np.maximum(x, 0) - x * label + np.log1p(np.exp(-np.abs(x)))


def zero_padding_boxes(boxes: Array) -> Array:
    """Return boxes with padding boxes zeroed, so that these overlap nothing."""
    small: Array = boxes[..., 2:] <= SMALLEST
    return np.where(small.any(axis=-1, keepdims=True), 0, boxes)


def chosen_anchors(boxes: Array, anchors: Array, mask: Sequence[int], size: int) -> Array:
    """Return, per ground-truth box, the index in `mask` of the most similar anchor, or -1.

    Padding boxes are -1 too.
    """
    shapes = np.concatenate([np.zeros_like(anchors), anchors / size], axis=1)
    truth_box = boxes[..., None, :] * np.array([0, 0, 1, 1])
    best = centred_overlaps(shapes, truth_box).argmax(axis=-1)
    positions = np.full(len(anchors), -1, np.int32)
    for position, anchor in reversed(list(enumerate(mask))):
        positions[anchor] = position
    small: Array = boxes[..., 2:] <= SMALLEST
    return np.where(small.any(axis=-1), -1, positions[best]).astype(np.int32)


def matched_positions(boxes: Array, match: Array, sizes: Sequence[int]) -> tuple[Array, ...]:
    """Return image, box, anchor, row and column of the matched ground-truth boxes."""
    image, number = np.nonzero(match >= 0)
    matched = boxes[image, number]
    row, column = (
        (matched[:, 1] * sizes[0]).astype(np.int64),
        (matched[:, 0] * sizes[1]).astype(np.int64),
    )
    return image, number, match[image, number], row, column


def box_targets(
    boxes: Array, anchors: Array, positions: tuple[Array, ...], cells: int, size: int
) -> Array:
    """Return the regression targets of ground-truth boxes: [K, 4]."""
    column_row = np.stack([positions[4], positions[3]], axis=1)
    return np.concatenate(
        [boxes[:, :2] * cells - column_row, np.log(boxes[:, 2:] * size / anchors)], axis=1
    )


def class_labels(numbers: Array, classes: int, smooth: bool) -> Array:
    """Return the label of every class of ground-truth boxes: 1 and 0, or smoothed."""
    less = min(1 / classes, SMOOTHEST) if smooth else 0.0
    return np.where(numbers[:, None] == np.arange(classes), 1 - less, less)


MAX_ANCHORS = 128
"""Maximum number of anchors per op: each is unrolled in the kernel."""


class Yolov3Loss(OpDef, op="yolov3_loss"):
    """Loss [N]: of centres, sizes, objectness and classes of all boxes, summed over an image.

    X is [N, anchors·(5 + classes), H, W] for the anchors in `anchor_mask`; GTBox [N, B, 4] has the
    centre and the sides of ground-truth boxes as fractions of the image, GTLabel int32 [N, B] their
    classes, GTScore their weights. A ground-truth box belongs to the most similar anchor,
    GTMatchMask is its index in the mask. ObjectnessMask is the score at the position of a
    ground-truth box, -1 where a predicted box overlaps one by more than `ignore_thresh`, otherwise
    0. Reference: yolov3_loss_op.h.
    """

    X = reads()
    GTBox = reads(no_grad=True)
    GTLabel = reads(no_grad=True)
    GTScore = reads(optional=True, no_grad=True)
    Loss = writes(shares_lod=False)
    ObjectnessMask = writes(shares_lod=False)
    GTMatchMask = writes(shares_lod=False)
    class_num: Attr[int] = required(int)
    anchors: Attr[list[int]] = required_list(int)
    anchor_mask: Attr[list[int]] = required_list(int, at_least(0))
    downsample_ratio = attr(32, at_least(1))
    ignore_thresh = attr(0.7)
    use_label_smooth = attr(True)
    scale_x_y = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, GTBox, GTLabel = s.X, s.GTBox, s.GTLabel
        GTScore = s.get("GTScore")
        require_images(self.kind, "X", X)
        require_dtype(self.kind, "GTLabel", GTLabel, DType.INT32)
        if len(self.anchors) > 2 * MAX_ANCHORS or len(self.anchor_mask) > MAX_ANCHORS:
            raise BadAttribute(
                f"yolov3_loss: 'anchors' has {len(self.anchors)} numbers and 'anchor_mask' "
                f"{len(self.anchor_mask)}, expected at most {MAX_ANCHORS} anchors"
            )
        count = require_head(self.kind, X, self.anchors, len(self.anchor_mask), self.class_num)
        if differ(X.shape[2], X.shape[3]):
            raise ShapeError(f"yolov3_loss: X is {X}, expected equal height and width")
        if GTBox.rank != 3 or differ(GTBox.shape[2], 4) or GTLabel.rank != 2:
            shapes = shown(GTBox=GTBox, GTLabel=GTLabel)
            raise ShapeError(f"yolov3_loss: {shapes}, expected [N, B, 4] and [N, B]")
        boxes = {"GTBox": GTBox.with_shape(GTBox.shape[:2]), "GTLabel": GTLabel}
        boxes |= {} if GTScore is None else {"GTScore": GTScore}
        for slot, tensor_type in boxes.items():
            if shapes_differ(
                tensor_type, wanted := tensor_type.with_shape((X.shape[0], GTBox.shape[1]))
            ):
                raise ShapeError(
                    f"yolov3_loss: {slot} is {tensor_type}, expected {wanted} for X {X}"
                )
        mask = X.with_shape((X.shape[0], count, *X.shape[2:]))
        match = GTLabel.with_shape(GTBox.shape[:2])
        return {"Loss": X.with_shape(X.shape[:1]), "ObjectnessMask": mask, "GTMatchMask": match}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(
        self, X: Array, GTBox: Array, GTLabel: Array, GTScore: Array | None
    ) -> dict[str, Array]:
        anchors, (height, width) = anchor_pairs(self.anchors), X.shape[2:]
        head = X.reshape(len(X), len(self.anchor_mask), 5 + self.class_num, height, width)
        size = self.downsample_ratio * height
        own = anchors[self.anchor_mask]
        boxes = predicted_boxes(head, own, self.scale_x_y, height, np.array([size, size]))
        iou = centred_overlaps(boxes[..., None, :], zero_padding_boxes(GTBox)[:, None, None, None])
        best: Array = iou.max(axis=-1, initial=0)
        mask = np.where(best > self.ignore_thresh, -1.0, 0.0)
        match = chosen_anchors(GTBox, anchors, self.anchor_mask, size)
        positions = matched_positions(GTBox, match, (height, width))
        image, number, anchor, row, column = positions
        score = np.ones(match.shape) if GTScore is None else GTScore
        mask[image, anchor, row, column] = score[image, number]
        values = matched_values(
            head, GTBox, GTLabel, score, positions, anchors[self.anchor_mask], size
        )
        loss = np.zeros(len(X))
        labels = class_labels(values[1], self.class_num, self.use_label_smooth)
        np.add.at(loss, image, box_losses(values[0], values[2], labels, values[3]))
        objectness = head[:, :, 4]
        negative, positive = (
            binary_cross_entropy(objectness, objectness * 0),
            binary_cross_entropy(objectness, objectness * 0 + 1),
        )
        spread = np.where(mask > COUNTS, positive * mask, negative * (mask > -0.5))
        loss += spread.sum(axis=(1, 2, 3))
        result = {"Loss": loss.astype(X.dtype), "ObjectnessMask": mask.astype(X.dtype)}
        return {**result, "GTMatchMask": match}

    def grad(
        self,
        X: Array,
        GTBox: Array,
        GTLabel: Array,
        GTScore: Array | None,
        ObjectnessMask: Array,
        GTMatchMask: Array,
        d_Loss: Array,
    ) -> dict[str, Array]:
        anchors, (height, width) = anchor_pairs(self.anchors), X.shape[2:]
        head = X.reshape(len(X), len(self.anchor_mask), 5 + self.class_num, height, width)
        size = self.downsample_ratio * height
        score = np.ones(GTMatchMask.shape) if GTScore is None else GTScore
        positions = matched_positions(GTBox, GTMatchMask, (height, width))
        image, _, anchor, row, column = positions
        values = matched_values(
            head, GTBox, GTLabel, score, positions, anchors[self.anchor_mask], size
        )
        labels = class_labels(values[1], self.class_num, self.use_label_smooth)
        gradients = box_loss_gradients(values[0], values[2], labels, values[3])
        d_head = np.zeros(head.shape)
        np.add.at(np.moveaxis(d_head, 2, -1), (image, anchor, row, column), gradients)
        p, mask = sigmoid(head[:, :, 4]), ObjectnessMask
        d_head[:, :, 4] = np.where(mask > COUNTS, (p - 1) * mask, p * (mask > -0.5))
        d_head *= d_Loss.reshape(-1, 1, 1, 1, 1)
        return {"X": d_head.reshape(X.shape).astype(X.dtype)}

    def head(self, X: DeviceOperand) -> Head:
        """Return the head for device kernels."""
        pairs = [(float(w), float(h)) for w, h in anchor_pairs(self.anchors)]
        own, size = (
            [pairs[position] for position in self.anchor_mask],
            X.shape[2] * self.downsample_ratio,
        )
        return Head(X, own, self.class_num, self.scale_x_y, X.shape[2], size)

    def truth(
        self, boxes: DeviceOperand, labels: DeviceOperand, scores: DeviceOperand | None
    ) -> Truth:
        """Return ground-truth boxes for device kernels."""
        less = min(1 / self.class_num, SMOOTHEST) if self.use_label_smooth else 0.0
        return Truth(boxes, labels, scores, SMALLEST, less)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        head, truth = self.head(s.X), self.truth(s.GTBox, s.GTLabel, s.get("GTScore"))
        match = s.get("GTMatchMask") or k.scratch(s.GTLabel.shape, DType.INT32)
        mask = s.get("ObjectnessMask") or k.scratch(head.positions, s.X.type.dtype)
        pairs = [(float(w), float(h)) for w, h in anchor_pairs(self.anchors)]
        yolov3_loss_kernels.matches(k, truth, pairs, self.anchor_mask, head.size, match)
        yolov3_loss_kernels.objectness(k, head, truth, match, self.ignore_thresh, mask)
        if (Loss := s.get("Loss")) is not None:
            yolov3_loss_kernels.losses(k, head, truth, match, mask, COUNTS, Loss)

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check, count = k.function(check_optional_indices), len(self.anchor_mask)
        k.line(f"{check}({s.GTMatchMask}, {count}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        head, truth = self.head(s.X), self.truth(s.GTBox, s.GTLabel, s.get("GTScore"))
        operands = (s.GTMatchMask, s.ObjectnessMask, COUNTS, s.d_Loss, s.d_X)
        yolov3_loss_kernels.gradient(k, head, truth, *operands)


def matched_values(
    head: Array,
    GTBox: Array,
    GTLabel: Array,
    score: Array,
    positions: tuple[Array, ...],
    anchors: Array,
    size: int,
) -> tuple[Array, Array, Array, tuple[Array, Array]]:
    """Return, for matched ground-truth boxes: head output, class, box targets, and weights."""
    image, number, anchor, row, column = positions
    boxes = GTBox[image, number]
    logits = np.moveaxis(head, 2, -1)[image, anchor, row, column]
    targets = box_targets(boxes, anchors[anchor], positions, head.shape[3], size)
    counted = score[image, number]
    return (
        logits,
        GTLabel[image, number],
        targets,
        ((2 - boxes[:, 2] * boxes[:, 3]) * counted, counted),
    )


def box_losses(logits: Array, targets: Array, labels: Array, weights: tuple[Array, Array]) -> Array:
    """Return the loss of each ground-truth box, without that of objectness: [K]."""
    middle = binary_cross_entropy(logits[:, :2], targets[:, :2]).sum(axis=1)
    sides = np.abs(targets[:, 2:] - logits[:, 2:4]).sum(axis=1)
    classes = binary_cross_entropy(logits[:, 5:], labels).sum(axis=1)
    return (middle + sides) * weights[0] + classes * weights[1]


def box_loss_gradients(
    logits: Array, targets: Array, labels: Array, weights: tuple[Array, Array]
) -> Array:
    """Return the gradient of `box_losses` by the head output: [K, 5 + classes]."""
    middle = (sigmoid(logits[:, :2]) - targets[:, :2]) * weights[0][:, None]
    sides = np.where(logits[:, 2:4] > targets[:, 2:], 1.0, -1.0) * weights[0][:, None]
    classes = (sigmoid(logits[:, 5:]) - labels) * weights[1][:, None]
    return np.concatenate([middle, sides, np.zeros((len(logits), 1)), classes], axis=1)
