"""Box ops: overlap, clipping, encoding and decoding. None has a gradient.

Boxes are (x1, y1, x2, y2). If they are not `normalized`, coordinates are element indices, and a
side from a to b has b - a + 1 elements.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import (
    Attr,
    OpDef,
    Slots,
    attr,
    attr_list,
    reads,
    reads_lod,
    required,
    writes,
)
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Number,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.detection import box_coder_kernels
from compiler.ops.detection.box_coder_kernels import edges, overlap, put
from compiler.ops.image.layouts import require_images
from compiler.ops.sequence.offsets import count_of
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown

BLOCK = 1 << 14
"""Overlaps computed at once: their intermediate results stay in the cache."""


def require_weights(op: str, PriorBoxVar: TensorType) -> None:
    """Raise ShapeError unless PriorBoxVar has the weights of one box: [4]."""
    if PriorBoxVar.rank != 1 or differ(PriorBoxVar.shape[0], 4):
        raise ShapeError(f"{op}: PriorBoxVar is {PriorBoxVar}, expected [4]")


def require_boxes(op: str, slot: str, boxes: TensorType) -> None:
    """Raise ShapeError unless the last axis of an input holds the four edges of a box."""
    if boxes.rank < 2 or differ(boxes.shape[-1], 4) or not boxes.dtype.is_float:
        raise ShapeError(f"{op}: {slot} is {boxes}, expected boxes […, 4]")


def overlaps(one: Array, other: Array, extra: float) -> Array:
    """Return intersection over union of boxes [N, 4] and [M, 4]: [N, M]; `extra` adds to sides."""
    step = max(1, BLOCK // max(1, len(one)))
    if len(other) <= step:
        return _overlaps(one, other, extra)
    result = np.empty((len(one), len(other)), np.result_type(one, other))
    for start in range(0, len(other), step):
        block = slice(start, start + step)
        result[:, block] = _overlaps(one, other[block], extra)
    return result


def _overlaps(one: Array, other: Array, extra: float) -> Array:
    first, second = one.T.copy()[:, :, None], other.T.copy()[:, None]
    sides: list[Array] = []
    for low, high in ((0, 2), (1, 3)):
        side = np.minimum(first[high], second[high])
        side -= np.maximum(first[low], second[low])
        side += extra
        sides.append(np.maximum(side, 0, out=side))
    areas, others = (
        (box[2] - box[0] + extra) * (box[3] - box[1] + extra) for box in (first, second)
    )
    intersection = np.multiply(*sides, out=sides[0])
    union = np.add(areas, others, out=sides[1])
    union -= intersection
    union[union == 0] = 1
    return np.divide(intersection, union, out=intersection)


class IouSimilarity(OpDef, op="iou_similarity"):
    """Out[i, j] = the intersection of boxes X[i] and Y[j] over their union.

    X is [N, 4]; Out [N, M] has its LoD, if there is one. Reference: iou_similarity_op.h.
    """

    X = reads(no_grad=True)
    Y = reads(no_grad=True)
    Out = writes()
    box_normalized = attr(True)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_boxes(self.kind, "X", X)
        require_boxes(self.kind, "Y", Y)
        require_same_dtype(self.kind, X=X, Y=Y)
        if (X.rank, Y.rank) != (2, 2):
            raise ShapeError(f"iou_similarity: {shown(X=X, Y=Y)}, expected boxes [N, 4] and [M, 4]")
        return X.with_shape((X.shape[0], Y.shape[0]))

    def numpy(self, X: Array, Y: Array) -> Array:
        return overlaps(X, Y, 0.0 if self.box_normalized else 1.0).astype(X.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.Out.shape)
        extra = 0.0 if self.box_normalized else 1.0
        k.store(s.Out, (i, j), overlap(k, edges(s.X, i), edges(s.Y, j), extra))


def centre_and_size(boxes: Array, extra: float) -> tuple[Array, Array]:
    """Return the centres and the sides of boxes, both […, 2]."""
    size = boxes[..., 2:] - boxes[..., :2] + extra
    return boxes[..., :2] + size / 2, size


def encoded(boxes: Array, priors: Array, extra: float) -> Array:
    """Encode boxes [N, 4] relative to priors [M, 4]: centre offsets, log size ratios [N, M, 4]."""
    middle, size = centre_and_size(priors, extra)
    centre = (boxes[:, None, :2] + boxes[:, None, 2:]) / 2
    sides = boxes[:, None, 2:] - boxes[:, None, :2] + extra
    return np.concatenate([(centre - middle) / size, np.log(np.abs(sides / size))], axis=-1)


def decoded(codes: Array, priors: Array, extra: float) -> Array:
    """Decode boxes from codes relative to priors of a broadcastable shape."""
    middle, size = centre_and_size(priors, extra)
    centre, half = codes[..., :2] * size + middle, np.exp(codes[..., 2:]) * size / 2
    return np.concatenate([centre - half, centre + half - extra], axis=-1)


class BoxCoder(OpDef, op="box_coder"):
    """Encode boxes relative to priors, or decode them: OutputBox [N, M, 4].

    `encode_center_size` encodes every TargetBox [N, 4], optionally with LoD, by every PriorBox [M,
    4]; `decode_center_size` takes codes [N, M, 4], and priors that broadcast along their axis 1
    (`axis` 0) or axis 0 (`axis` 1). Codes are divided, or multiplied, by PriorBoxVar, of the shape
    of PriorBox, or by the four numbers of `variance`. Reference: box_coder_op.h.
    """

    PriorBox = reads(no_grad=True)
    PriorBoxVar = reads(optional=True, no_grad=True)
    TargetBox = reads(no_grad=True)
    OutputBox = writes()
    lod_source = "TargetBox"
    code_type = attr("encode_center_size")
    box_normalized = attr(True)
    axis = attr(0)
    variance = attr_list(float)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        PriorBox, TargetBox = s.PriorBox, s.TargetBox
        PriorBoxVar = s.get("PriorBoxVar")
        require_boxes(self.kind, "PriorBox", PriorBox)
        require_boxes(self.kind, "TargetBox", TargetBox)
        if PriorBoxVar is not None and self.variance:
            raise BadAttribute("box_coder: variance and PriorBoxVar cannot both be set")
        encode = self.code_type == "encode_center_size"
        if not encode and self.code_type != "decode_center_size":
            hint = "expected encode_center_size or decode_center_size"
            raise BadAttribute(f"box_coder: code_type is {self.code_type!r}", hint=hint)
        expected = (2, 2) if encode else (2, 3)
        if (PriorBox.rank, TargetBox.rank) != expected:
            shapes = shown(PriorBox=PriorBox, TargetBox=TargetBox)
            raise ShapeError(f"box_coder: {shapes}, expected {expected[1]} axes of TargetBox")
        if PriorBoxVar is not None and PriorBoxVar.rank != 1:
            require_same_shape(self.kind, PriorBox=PriorBox, PriorBoxVar=PriorBoxVar)
        elif PriorBoxVar is not None:
            require_weights(self.kind, PriorBoxVar)
        if encode:
            return TargetBox.with_shape((TargetBox.shape[0], PriorBox.shape[0], 4))
        if self.axis not in (0, 1) or differ(TargetBox.shape[1 - self.axis], PriorBox.shape[0]):
            shapes = shown(PriorBox=PriorBox, TargetBox=TargetBox)
            raise ShapeError(f"box_coder: {shapes} are incompatible on axis {1 - self.axis}")
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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.OutputBox.shape[:2])
        encode = self.code_type == "encode_center_size"
        own, extra = i if self.axis == 1 and not encode else j, 1.0 - self.box_normalized
        weights: list[Number] = self.variance or [1.0] * 4
        if (PriorBoxVar := s.get("PriorBoxVar")) is not None:
            has_rows = PriorBoxVar.type.rank == 2
            weights = [PriorBoxVar[(own, a) if has_rows else a] for a in range(4)]
        prior, target = edges(s.PriorBox, own), edges(s.TargetBox, *((i,) if encode else (i, j)))
        if encode:
            code = box_coder_kernels.encoded(k, target, prior, extra)
            box = [part / weight for part, weight in zip(code, weights, strict=True)]
        else:
            code = [part * weight for part, weight in zip(target, weights, strict=True)]
            box = box_coder_kernels.decoded(k, code, prior, extra)
        put(k, s.OutputBox, (i, j), box)


class BoxClip(OpDef, op="box_clip"):
    """Output = the boxes of Input clipped to their image.

    Input is […, 4] in one sequence per image, ImInfo [N, 3] the height, width and scale of each:
    the image has size / scale elements, rounded. Reference: box_clip_op.h.
    """

    Input = reads(no_grad=True)
    Input_lod = reads_lod("Input", optional=True)
    ImInfo = reads(no_grad=True)
    Output = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        ImInfo = s.ImInfo
        Input_lod = s.all("Input_lod")
        require_boxes(self.kind, "Input", s.Input)
        images = count_of(Input_lod[-1]) if Input_lod else ImInfo.shape[0] if ImInfo.rank else 0
        if ImInfo.rank != 2 or differ(ImInfo.shape[1], 3) or differ(ImInfo.shape[0], images):
            raise ShapeError(f"box_clip: ImInfo is {ImInfo}, expected [{images}, 3]")
        return s.Input

    def numpy(self, Input: Array, Input_lod: list[Array] | None, ImInfo: Array) -> Array:
        sizes = np.floor(ImInfo[:, :2] / ImInfo[:, 2:] + 0.5) - 1
        counts = np.diff(Input_lod[-1]) if Input_lod else np.ones(len(ImInfo), np.int64)
        most = np.repeat(sizes[:, [1, 0, 1, 0]], counts, axis=0)
        most = most.reshape(len(Input), *[1] * (Input.ndim - 2), 4)
        return np.clip(Input, 0, most).astype(Input.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input, ImInfo = s.Input, s.ImInfo
        Input_lod = s.host.all("Input_lod")
        owners = owner_rows(k, Input_lod[-1], Input.shape[0]) if Input_lod else None
        at, last = k.grid(*Input.shape), k.size(ImInfo.shape[0]) - 1
        image = k.clip(at[0] if owners is None else owners[at[0]], 0, last)
        size = k.where(k.equal(k.mod(at[-1], 2), 0), ImInfo[image, 1], ImInfo[image, 0])
        whole = k.astype(size, DType.FP64) / k.astype(ImInfo[image, 2], DType.FP64)
        edge = k.floor(k.astype(whole, ImInfo.type.dtype) + 0.5) - 1.0
        k.store(s.Output, at, k.clip(Input[at], 0.0, edge))


class PolygonBoxTransform(OpDef, op="polygon_box_transform"):
    """Output[n, c, y, x] = 4·x - Input, for odd c 4·y - Input: offsets become positions.

    Input is [N, C, H, W], the offsets of polygon corners from each position of a map at a quarter
    of the resolution. Reference: polygon_box_transform_op.cc.
    """

    Input = reads(no_grad=True)
    Output = writes(shares_lod=False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_images(self.kind, "Input", s.Input)
        return s.Input

    def numpy(self, Input: Array) -> Array:
        positions = np.empty(Input.shape[1:], Input.dtype)
        positions[0::2] = 4 * np.arange(Input.shape[3])
        positions[1::2] = 4 * np.arange(Input.shape[2])[:, None]
        return positions - Input

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        _, c, y, x = at = k.grid(*Input.shape)
        position = k.where(k.equal(k.mod(c, 2), 0), x, y) * 4
        k.store(s.Output, at, k.astype(position, Input.type.dtype) - Input[at])


class BoxDecoderAndAssign(OpDef, op="box_decoder_and_assign"):
    """DecodeBox = a box per class, OutputAssignBox = that of the most likely class except 0.

    PriorBox is [R, 4], PriorBoxVar [4], TargetBox [R, classes·4] codes, BoxScore [R, classes]. Log
    sizes are clipped at `box_clip`. Reference: box_decoder_and_assign_op.h.
    """

    PriorBox = reads(no_grad=True)
    PriorBoxVar = reads(no_grad=True, optional=True)
    TargetBox = reads(no_grad=True)
    BoxScore = reads(no_grad=True)
    DecodeBox = writes(shares_lod=False)
    OutputAssignBox = writes()
    box_clip: Attr[float] = required(float)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        PriorBox, TargetBox, BoxScore = s.PriorBox, s.TargetBox, s.BoxScore
        require_boxes(self.kind, "PriorBox", PriorBox)
        if (PriorBoxVar := s.get("PriorBoxVar")) is not None:
            require_weights(self.kind, PriorBoxVar)
        inputs = {"PriorBox": PriorBox, "TargetBox": TargetBox, "BoxScore": BoxScore}
        rows = PriorBox.shape[0]
        if any(
            tensor_type.rank != 2 or differ(tensor_type.shape[0], rows)
            for tensor_type in inputs.values()
        ):
            raise ShapeError(f"{self.kind}: {shown(**inputs)}, expected as many rows of each")
        if differ(TargetBox.shape[1], BoxScore.shape[1] * 4):
            shapes = shown(TargetBox=TargetBox, BoxScore=BoxScore)
            raise ShapeError(f"box_decoder_and_assign: {shapes}, expected four codes per class")
        return {"DecodeBox": TargetBox, "OutputAssignBox": PriorBox}

    def numpy(
        self, PriorBox: Array, PriorBoxVar: Array | None, TargetBox: Array, BoxScore: Array
    ) -> dict[str, Array]:
        weights = np.ones(4) if PriorBoxVar is None else PriorBoxVar
        codes = TargetBox.reshape(len(TargetBox), TargetBox.shape[1] // 4, 4) * weights
        codes[..., 2:] = np.minimum(codes[..., 2:], self.box_clip)
        boxes = decoded(codes, PriorBox[:, None], 1.0).astype(TargetBox.dtype)
        best = BoxScore[:, 1:].argmax(axis=1) + 1 if BoxScore.shape[1] > 1 else None
        rows = np.arange(len(boxes))
        assigned = PriorBox if best is None else boxes[rows, best]
        return {"DecodeBox": boxes.reshape(TargetBox.shape), "OutputAssignBox": assigned}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        PriorBoxVar = s.get("PriorBoxVar")
        rows, classes = s.BoxScore.shape
        table = (rows, classes, 4)

        def box(row: Number, of: Number) -> list[Number]:
            code = edges(s.TargetBox.reshaped(table), row, of)
            if PriorBoxVar is not None:
                code = [part * PriorBoxVar[edge] for edge, part in enumerate(code)]
            code[2:] = (k.minimum(part, self.box_clip) for part in code[2:])
            return box_coder_kernels.decoded(k, code, edges(s.PriorBox, row), 1.0)

        if (DecodeBox := s.get("DecodeBox")) is not None:
            row, of = k.grid(rows, classes)
            put(k, DecodeBox.reshaped(table), (row, of), box(row, of))
        if (OutputAssignBox := s.get("OutputAssignBox")) is not None:
            (row,) = k.grid(rows)
            r = k.loop(classes)
            score = k.where(r > 0, s.BoxScore[row, r], float("-inf"))
            best = k.clip(k.argmax(score, r), 0, k.size(classes) - 1)
            own = zip(edges(s.PriorBox, row), box(row, best), strict=True)
            put(k, OutputAssignBox, (row,), [k.where(best > 0, a, b) for b, a in own])
