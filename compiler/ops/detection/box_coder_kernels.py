"""Device kernels of boxes: one program per box, or per pair of boxes."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType

Box = Sequence[Number]
"""The four edges of a box: left, top, right, bottom."""


def edges(boxes: DeviceOperand, *at: Number) -> list[Number]:
    """Load the edges of a box of [..., 4]."""
    return [boxes[(*at, edge)] for edge in range(4)]


def sides(k: KernelBuilder, box: Box, extra: float) -> list[Number]:
    """Return the width and the height of a box."""
    return [box[axis + 2] - box[axis] + extra for axis in (0, 1)]


def overlap(k: KernelBuilder, one: Box, other: Box, extra: float) -> Number:
    """Return the intersection over union of two boxes."""
    intersection: Number = 1.0
    for axis in (0, 1):
        low, high = k.maximum(one[axis], other[axis]), k.minimum(one[axis + 2], other[axis + 2])
        intersection = k.maximum(high - low + extra, 0.0) * intersection
    (wide, tall), (broad, high) = sides(k, one, extra), sides(k, other, extra)
    union = wide * tall + broad * high - intersection
    return intersection / k.where(k.equal(union, 0.0), 1.0, union)


def encoded(k: KernelBuilder, box: Box, prior: Box, extra: float) -> list[Number]:
    """Encode a box relative to a prior: centre offset in prior sizes, log of the size ratio."""
    spans, own = sides(k, prior, extra), sides(k, box, extra)
    middles = [prior[axis] + spans[axis] / 2.0 for axis in (0, 1)]
    away = [((box[a] + box[a + 2]) / 2.0 - middles[a]) / spans[a] for a in (0, 1)]
    return [*away, *(k.log(k.absolute(own[axis] / spans[axis])) for axis in (0, 1))]


def decoded(k: KernelBuilder, code: Box, prior: Box, extra: float) -> list[Number]:
    """Decode a box from a code relative to a prior."""
    spans = sides(k, prior, extra)
    centres = [code[a] * spans[a] + (prior[a] + spans[a] / 2.0) for a in (0, 1)]
    halves = [k.exp(code[axis + 2]) * spans[axis] / 2.0 for axis in (0, 1)]
    low = [centres[axis] - halves[axis] for axis in (0, 1)]
    return [*low, *(centres[axis] + halves[axis] - extra for axis in (0, 1))]


def put(k: KernelBuilder, boxes: DeviceOperand, at: Sequence[Number], box: Box) -> None:
    """Store the edges of a box."""
    for edge, value in enumerate(box):
        k.store(boxes, (*at, edge), value)


def real(k: KernelBuilder, size: Size) -> Number:
    """Return a size in double precision."""
    return float(size) if isinstance(size, int) else k.astype(k.size(size), DType.FP64)
