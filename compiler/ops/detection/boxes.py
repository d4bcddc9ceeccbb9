"""Boxes measured, cut, compared, encoded and decoded. None of this has a gradient.

Boxes are (x1, y1, x2, y2). Where they are not `normalized`, they count elements, and a side from a
to b has b - a + 1 of them.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, attr, reads, reads_lod, required, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import differ, require_same_dtype, shown
from compiler.ops.image.windows import require_images


def require_boxes(op: str, slot: str, boxes: TensorType) -> None:
    """ShapeError unless the last axis of an input holds the four edges of a box."""
    if boxes.rank < 2 or differ(boxes.shape[-1], 4) or not boxes.dtype.is_float:
        raise ShapeError(f"{op}: {slot} is {boxes}, expected boxes […, 4]")


def overlaps(one: Array, other: Array, extra: float) -> Array:
    """Intersection over union of boxes [N, 4] with boxes [M, 4]: [N, M]; `extra` adds to sides."""
    first, second = one[:, None], other[None]
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    shared = np.maximum(high - low + extra, 0).prod(axis=-1)
    areas = (first[..., 2:] - first[..., :2] + extra).prod(axis=-1)
    others = (second[..., 2:] - second[..., :2] + extra).prod(axis=-1)
    union = areas + others - shared
    return shared / np.where(union == 0, 1, union)


class IouSimilarity(OpDef, op="iou_similarity"):
    """Out[i, j] = the intersection of boxes X[i] and Y[j] over their union.

    X is [N, 4], maybe in sequences, which are those of Out [N, M]. Reference: iou_similarity_op.h.
    """

    X = reads(no_grad=True)
    Y = reads(no_grad=True)
    Out = writes()
    box_normalized = attr(True)

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_boxes(self.kind, "X", X)
        require_boxes(self.kind, "Y", Y)
        require_same_dtype(self.kind, X=X, Y=Y)
        if (X.rank, Y.rank) != (2, 2):
            raise ShapeError(f"iou_similarity: {shown(X=X, Y=Y)}, expected boxes [N, 4] and [M, 4]")
        return X.with_shape((X.shape[0], Y.shape[0]))

    def numpy(self, X: Array, Y: Array) -> Array:
        return overlaps(X, Y, 0.0 if self.box_normalized else 1.0).astype(X.dtype)


def centre_and_size(boxes: Array, extra: float) -> tuple[Array, Array]:
    """The middle and the sides of boxes, both […, 2]."""
    size = boxes[..., 2:] - boxes[..., :2] + extra
    return boxes[..., :2] + size / 2, size


def encoded(boxes: Array, priors: Array, extra: float) -> Array:
    """Boxes [N, 4] as seen from priors [M, 4]: how far off, and how much larger; [N, M, 4]."""
    middle, size = centre_and_size(priors, extra)
    centre = (boxes[:, None, :2] + boxes[:, None, 2:]) / 2
    sides = boxes[:, None, 2:] - boxes[:, None, :2] + extra
    return np.concatenate([(centre - middle) / size, np.log(np.abs(sides / size))], axis=-1)


def decoded(codes: Array, priors: Array, extra: float) -> Array:
    """The boxes that codes mean, seen from priors of a shape that broadcasts."""
    middle, size = centre_and_size(priors, extra)
    centre, half = codes[..., :2] * size + middle, np.exp(codes[..., 2:]) * size / 2
    return np.concatenate([centre - half, centre + half - extra], axis=-1)


class BoxCoder(OpDef, op="box_coder"):
    """Boxes as seen from priors, or back: OutputBox [N, M, 4].

    `encode_center_size` codes every TargetBox [N, 4], maybe in sequences, by every PriorBox [M, 4];
    `decode_center_size` takes codes [N, M, 4], and priors that go with axis 1 of them (`axis` 0) or
    with axis 0 (`axis` 1). Codes are divided, or multiplied, by PriorBoxVar, of the shape of
    PriorBox, or by the four numbers of `variance`. Reference: box_coder_op.h.
    """

    PriorBox = reads(no_grad=True)
    PriorBoxVar = reads(optional=True, no_grad=True)
    TargetBox = reads(no_grad=True)
    OutputBox = writes()
    lod_like = "TargetBox"
    code_type = attr("encode_center_size")
    box_normalized = attr(True)
    axis = attr(0)
    variance = attr(list[float]())

    def infer(
        self, PriorBox: TensorType, PriorBoxVar: TensorType | None, TargetBox: TensorType
    ) -> TensorType:
        require_boxes(self.kind, "PriorBox", PriorBox)
        require_boxes(self.kind, "TargetBox", TargetBox)
        if PriorBoxVar is not None and self.variance:
            raise BadAttribute("box_coder: variance and PriorBoxVar cannot both be given")
        encode = self.code_type == "encode_center_size"
        if not encode and self.code_type != "decode_center_size":
            hint = "expected encode_center_size or decode_center_size"
            raise BadAttribute(f"box_coder: code_type is {self.code_type!r}", hint=hint)
        wanted = (2, 2) if encode else (2, 3)
        if (PriorBox.rank, TargetBox.rank) != wanted:
            found = shown(PriorBox=PriorBox, TargetBox=TargetBox)
            raise ShapeError(f"box_coder: {found}, expected {wanted[1]} axes of TargetBox")
        if encode:
            return TargetBox.with_shape((TargetBox.shape[0], PriorBox.shape[0], 4))
        if self.axis not in (0, 1) or differ(TargetBox.shape[1 - self.axis], PriorBox.shape[0]):
            found = shown(PriorBox=PriorBox, TargetBox=TargetBox)
            raise ShapeError(f"box_coder: {found} do not go together on axis {1 - self.axis}")
        return TargetBox

    def numpy(self, PriorBox: Array, PriorBoxVar: Array | None, TargetBox: Array) -> Array:
        extra, priors = 0.0 if self.box_normalized else 1.0, PriorBox
        weights = np.ones(4) if PriorBoxVar is None else PriorBoxVar
        weights = np.array(self.variance) if self.variance else weights
        if self.code_type == "encode_center_size":
            return (encoded(TargetBox, priors, extra) / weights).astype(TargetBox.dtype)
        if self.axis == 1:
            priors = priors[:, None]
            weights = weights[:, None] if weights.ndim == 2 else weights
        return decoded(TargetBox * weights, priors, extra).astype(TargetBox.dtype)


class BoxClip(OpDef, op="box_clip"):
    """Output = the boxes of Input cut at the edges of their picture.

    Input is […, 4] in sequences by picture, ImInfo [N, 3] the height, width and scale of each: the
    picture has as many elements as its size over its scale, rounded. Reference: box_clip_op.h.
    """

    Input = reads(no_grad=True)
    Input_lod = reads_lod("Input", optional=True)
    ImInfo = reads(no_grad=True)
    Output = writes()

    def infer(self, Input: TensorType, ImInfo: TensorType) -> TensorType:
        require_boxes(self.kind, "Input", Input)
        if ImInfo.rank != 2 or differ(ImInfo.shape[1], 3):
            raise ShapeError(f"box_clip: ImInfo is {ImInfo}, expected [N, 3]")
        return Input

    def numpy(self, Input: Array, Input_lod: list[Array] | None, ImInfo: Array) -> Array:
        sizes = np.floor(ImInfo[:, :2] / ImInfo[:, 2:] + 0.5) - 1
        counts = np.diff(Input_lod[-1]) if Input_lod else np.ones(len(ImInfo), np.int64)
        edges = np.repeat(sizes[:, [1, 0, 1, 0]], counts, axis=0)
        edges = edges.reshape(len(Input), *[1] * (Input.ndim - 2), 4)
        return np.clip(Input, 0, edges).astype(Input.dtype)


class PolygonBoxTransform(OpDef, op="polygon_box_transform"):
    """Output[n, c, y, x] = 4·x - Input, for odd c 4·y - Input: distances as places.

    Input is [N, C, H, W], the corners of a polygon as seen from each place, a quarter as large.
    Reference: polygon_box_transform_op.cc.
    """

    Input = reads(no_grad=True)
    Output = writes()

    def infer(self, Input: TensorType) -> TensorType:
        require_images(self.kind, "Input", Input)
        return Input

    def numpy(self, Input: Array) -> Array:
        places = np.empty(Input.shape[1:], Input.dtype)
        places[0::2] = 4 * np.arange(Input.shape[3])
        places[1::2] = 4 * np.arange(Input.shape[2])[:, None]
        return places - Input


class BoxDecoderAndAssign(OpDef, op="box_decoder_and_assign"):
    """DecodeBox = a box for every class, OutputAssignBox = that of the likeliest class but 0.

    PriorBox is [R, 4], PriorBoxVar [4], TargetBox [R, classes·4] codes, BoxScore [R, classes]. Logs
    of sizes are cut at `box_clip`. Reference: box_decoder_and_assign_op.h.
    """

    PriorBox = reads(no_grad=True)
    PriorBoxVar = reads(no_grad=True, optional=True)
    TargetBox = reads(no_grad=True)
    BoxScore = reads(no_grad=True)
    DecodeBox = writes()
    OutputAssignBox = writes()
    box_clip: Attr[float] = required(float)

    def infer(
        self, PriorBox: TensorType, TargetBox: TensorType, BoxScore: TensorType
    ) -> dict[str, TensorType]:
        require_boxes(self.kind, "PriorBox", PriorBox)
        if TargetBox.rank != 2 or differ(TargetBox.shape[1], BoxScore.shape[1] * 4):
            found = shown(TargetBox=TargetBox, BoxScore=BoxScore)
            raise ShapeError(f"box_decoder_and_assign: {found}, expected four codes a class")
        return {"DecodeBox": TargetBox, "OutputAssignBox": PriorBox}

    def numpy(
        self, PriorBox: Array, PriorBoxVar: Array | None, TargetBox: Array, BoxScore: Array
    ) -> dict[str, Array]:
        weights = np.ones(4) if PriorBoxVar is None else PriorBoxVar
        codes = TargetBox.reshape(len(TargetBox), -1, 4) * weights
        codes[..., 2:] = np.minimum(codes[..., 2:], self.box_clip)
        boxes = decoded(codes, PriorBox[:, None], 1.0).astype(TargetBox.dtype)
        best = BoxScore[:, 1:].argmax(axis=1) + 1 if BoxScore.shape[1] > 1 else None
        rows = np.arange(len(boxes))
        assigned = PriorBox if best is None else boxes[rows, best]
        return {"DecodeBox": boxes.reshape(TargetBox.shape), "OutputAssignBox": assigned}
