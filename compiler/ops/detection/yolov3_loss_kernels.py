"""Device kernels of `yolov3_loss`: anchor matching, objectness targets, losses, gradient.

The gradients of all ground-truth boxes at one position are summed by the first of them, so the
order of additions is deterministic; the last of them defines the score of the position.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.detection.box_coder_kernels import Box, real
from compiler.ops.detection.yolo_box_kernels import Head, sigmoid
from compiler.ops.shared_kernels import fill, inside, listed
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Truth:
    """Ground-truth boxes [N, B, 4], centre and sides as fractions of an image; classes and scores.

    Boxes with a side up to `small` are padding; `less` is the label smoothing.
    """

    boxes: DeviceOperand
    labels: DeviceOperand
    scores: DeviceOperand | None
    small: float
    less: float

    @property
    def count(self) -> Size:
        """Number of boxes per image."""
        return self.boxes.shape[1]

    def box(self, n: Number, b: Number) -> Box:
        """Load a ground-truth box."""
        return [self.boxes[n, b, edge] for edge in range(4)]

    def score(self, n: Number, b: Number, where: Number | None = None) -> Number:
        """Return the weight of a ground-truth box."""
        return 1.0 if self.scores is None else self.scores.at(n, b, where=where, other=0)

    def is_padding(self, box: Box) -> Number:
        """Test if a box is padding."""
        return (box[2] <= self.small) | (box[3] <= self.small)


def overlap(k: KernelBuilder, one: Box, other: Box) -> Number:
    """Return `centred_overlaps` of two boxes."""
    intersection: Number = 1.0
    for axis in (0, 1):
        low = k.maximum(one[axis] - one[axis + 2] / 2.0, other[axis] - other[axis + 2] / 2.0)
        high = k.minimum(one[axis] + one[axis + 2] / 2.0, other[axis] + other[axis + 2] / 2.0)
        intersection = k.maximum(high - low, 0.0) * intersection
    union = one[2] * one[3] + other[2] * other[3] - intersection
    return intersection / k.where(union > 0, union, 1.0)


def matches(
    k: KernelBuilder, truth: Truth, anchors: Sequence[tuple[float, float]], mask: Sequence[int],
    size: Size, out: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for the index in `mask` of the anchor most similar to each box, -1 for none."""
    n, b = k.grid(*out.shape)
    box, best, most = truth.box(n, b), n * 0, None
    sides = [k.astype(side, DType.FP64) for side in box[2:]]
    for number, anchor in enumerate(anchors):
        shape = [side / real(k, size) for side in anchor]
        intersection = k.minimum(sides[0], shape[0]) * k.minimum(sides[1], shape[1])
        union = sides[0] * sides[1] + shape[0] * shape[1] - intersection
        alike = intersection / k.where(union > 0, union, 1.0)
        best = best if most is None else k.where(alike > most, number, best)
        most = alike if most is None else k.maximum(most, alike)
    positions = [
        list(mask).index(number) if number in mask else -1 for number in range(len(anchors))
    ]
    matched = listed(k, best, positions, DType.INT32)
    k.store(out, (n, b), k.where(truth.is_padding(box), -1, matched))


def belongs_to(
    k: KernelBuilder,
    head: Head,
    truth: Truth,
    match: DeviceOperand,
    at: Sequence[Number],
    b: Number,
) -> Number:
    """Test if a ground-truth box belongs to an anchor at a position of the head."""
    n, anchor, row, column = at
    y, x = _position(k, head, truth.box(n, b))
    return k.equal(match[n, b], anchor) & k.equal(y, row) & k.equal(x, column)


def _position(k: KernelBuilder, head: Head, box: Box) -> tuple[Number, Number]:
    """Return the row and the column of the head that contain the centre of a box."""
    _, _, height, width = head.positions
    dtype = head.X.type.dtype
    sizes = (k.astype(k.size(size), dtype) for size in (height, width))
    y, x = (k.astype(box[1 - a] * size, DType.INT32) for a, size in enumerate(sizes))
    return y, x


def _inside_head(k: KernelBuilder, head: Head, row: Number, column: Number) -> Number:
    """Test if a position is one of the head's."""
    return inside(k, row, head.positions[2]) & inside(k, column, head.positions[3])


def objectness(
    k: KernelBuilder,
    head: Head,
    truth: Truth,
    match: DeviceOperand,
    ignore: float,
    out: DeviceOperand,
) -> None:
    """Emit a kernel for the objectness target of each position: a score, 0, or -1 for ignored."""
    at = k.grid(*head.positions)
    b = k.loop(truth.count)
    box, truth_box = head.box(k, at), truth.box(at[0], b)
    real_box = [k.where(truth.is_padding(truth_box), 0.0, part) for part in truth_box]
    background = k.where(k.max(overlap(k, box, real_box), b) > ignore, -1.0, 0.0)
    own = k.where(belongs_to(k, head, truth, match, at, b), b, -1)
    last = k.max(k.astype(own, DType.INT32), b)
    score = truth.score(at[0], last, last >= 0)
    k.store(out, at, k.where(last >= 0, score, background))


def targets(
    k: KernelBuilder, head: Head, truth: Truth, at: Sequence[Number], b: Number
) -> list[Number]:
    """Return the regression targets of a ground-truth box at a position."""
    n, anchor, row, column = at
    box = truth.box(n, b)
    regression = [
        box[axis] * real(k, head.cells) - position for axis, position in ((0, column), (1, row))
    ]
    for axis in (0, 1):
        length = listed(k, anchor, [pair[axis] for pair in head.anchors], DType.FP64)
        side = k.maximum(box[axis + 2], truth.small)
        regression.append(k.log(side * real(k, head.size) / length))
    return regression


def weights(k: KernelBuilder, truth: Truth, n: Number, b: Number) -> tuple[Number, Number]:
    """Return the weights of box and class losses of a ground-truth box."""
    box, score = truth.box(n, b), truth.score(n, b)
    return (2.0 - box[2] * box[3]) * score, score


def cross_entropy(k: KernelBuilder, x: Number, label: Number) -> Number:
    """Return -label·log(p) - (1 - label)·log(1 - p) for p = sigmoid(x)."""
    return k.maximum(x, 0.0) - x * label + k.log1p(k.exp(-k.absolute(x)))


def class_label(k: KernelBuilder, truth: Truth, n: Number, b: Number, of: Number) -> Number:
    """Return the label of a class for a ground-truth box: 1 or 0, or smoothed."""
    return k.where(k.equal(truth.labels[n, b], of), 1.0 - truth.less, truth.less)


def losses(
    k: KernelBuilder,
    head: Head,
    truth: Truth,
    match: DeviceOperand,
    mask: DeviceOperand,
    counts: float,
    out: DeviceOperand,
) -> None:
    """Emit kernels for the loss of each ground-truth box, and for the total loss of each image."""
    batch, positions = head.X.shape[0], head.positions
    partial_loss = k.scratch((batch, truth.count), DType.FP64)
    n, b = k.grid(*partial_loss.shape)
    anchor, (row, column) = match[n, b], _position(k, head, truth.box(n, b))
    matched = (anchor >= 0) & _inside_head(k, head, row, column)
    at = (n, k.maximum(anchor, 0), row, column)
    target, (whole, score) = targets(k, head, truth, at, b), weights(k, truth, n, b)
    cost: Number = 0.0
    for entry, value in enumerate(target):
        logit = head.load(at, entry, matched)
        cost = (cross_entropy(k, logit, value) if entry < 2 else k.absolute(value - logit)) + cost
    of = k.loop(head.classes)
    label = class_label(k, truth, n, b, of)
    classes = k.sum(cross_entropy(k, head.load(at, 5 + of, matched), label), of)
    k.store(partial_loss, (n, b), k.where(matched, cost * whole + classes * score, 0.0))
    (n,) = k.grid(batch)
    r, b = k.loop(product(positions[1:])), k.loop(truth.count)
    anchor, row, column = k.unravel(r, positions[1:])
    logit, objectness_target = head.load((n, anchor, row, column), 4), mask[n, anchor, row, column]
    positive = cross_entropy(k, logit, 1.0) * objectness_target
    negative = k.where(objectness_target > -0.5, cross_entropy(k, logit, 0.0), 0.0)
    total = k.sum(k.where(objectness_target > counts, positive, negative), r)
    k.store(out, (n,), total + k.sum(partial_loss[n, b], b))


def gradient(
    k: KernelBuilder,
    head: Head,
    truth: Truth,
    match: DeviceOperand,
    mask: DeviceOperand,
    counts: float,
    d_Loss: DeviceOperand,
    d_X: DeviceOperand,
) -> None:
    """Emit kernels for the gradient: objectness at each position, the rest where boxes are."""
    batch, entries = head.X.shape[0], 5 + head.classes
    fill(k, d_X, 0)
    at = k.grid(*head.positions)
    p, objectness_target = sigmoid(k, head.load(at, 4)), mask[at]
    objectness = k.where(
        objectness_target > counts,
        (p - 1.0) * objectness_target,
        k.where(objectness_target > -0.5, p, 0.0),
    )
    n, anchor, row, column = at
    k.store(d_X, (n, anchor * entries + 4, row, column), objectness * d_Loss[n])
    n, b, entry = k.grid(batch, truth.count, entries)
    anchor, (row, column) = match[n, b], _position(k, head, truth.box(n, b))
    matched = (anchor >= 0) & _inside_head(k, head, row, column)
    at, other = (n, k.maximum(anchor, 0), row, column), k.loop(truth.count)
    x = head.load(at, entry, matched)
    p, target = sigmoid(k, x), targets(k, head, truth, at, other)
    whole, score = weights(k, truth, n, other)
    middle = (p - k.where(k.equal(entry, 0), target[0], target[1])) * whole
    side = k.where(x > k.where(k.equal(entry, 2), target[2], target[3]), whole, -whole)
    of = (p - class_label(k, truth, n, other, entry - 5)) * score
    slope = k.where(entry < 2, middle, k.where(entry < 4, side, of))
    own = belongs_to(k, head, truth, match, at, other)
    total = k.sum(k.where(own, slope, 0.0), other)
    first = k.min(k.astype(k.where(own, other, k.size(truth.count)), DType.INT32), other)
    stored = matched & k.equal(first, b) & ((entry < 4) | (entry > 4))
    k.store(d_X, (n, at[1] * entries + entry, row, column), total * d_Loss[n], stored)
