"""Device kernels of `deformable_psroi_pooling`: one program per cell, looping over its samples.

Gradients are accumulated with atomic adds, at samples and at parts, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.image.roi_pool_kernels import Boxes, rounded, times
from compiler.ops.math.bilinear_sampling_kernels import Corner, corners, looked, moved
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class PartSampling:
    """Sampling parameters: groups of channels, parts that shift, and samples per cell and axis.

    `trans` [R, classes·2, …parts] shifts the parts, in box sides times `factor`; None for no shift.
    """

    boxes: Boxes
    groups: tuple[int, int]
    parts: tuple[int, int]
    trans: DeviceOperand | None
    factor: float
    samples: int


@dataclass(frozen=True)
class Sample:
    """A sample: its output index and loop index, the elements around it, and whether it counts.

    `sides` are the sides of the box; `slants` are true on the axes where it lies between elements.
    """

    at: tuple[Number, ...]
    iteration: Number
    image_index: Number
    channel: Number
    corners: list[Corner]
    counts: Number
    sides: tuple[Number, Number]
    slants: tuple[Number, Number]


def begin(k: KernelBuilder, p: PartSampling, channels: Size, sizes: Sequence[Size]) -> Sample:
    """Start a kernel over the cells of each box and output channel; return its sample."""
    at = k.grid(p.boxes.rois.shape[0], channels, *p.boxes.cells)
    iteration = k.loop(p.samples * p.samples)
    steps = k.unravel(iteration, (p.samples, p.samples))
    positions: list[Number] = []
    sides: list[Number] = []
    in_range: list[Number] = []
    for axis in (0, 1):
        position, side = _position(k, p, at, channels, axis, steps[axis])
        last = k.astype(k.size(sizes[axis]) - 1, DType.FP64)
        in_range.append((position >= -0.5) & (position <= last + 0.5))
        positions.append(k.clip(position, 0.0, last))
        sides.append(side)
    i, j = (k.div(at[2 + a] * p.groups[a], p.boxes.cells[a]) for a in (0, 1))
    channel = (at[1] * p.groups[0] + i) * p.groups[1] + j
    slants = tuple(k.not_equal(position, k.floor(position)) for position in positions)
    around = corners(k, positions[0], positions[1], sizes)
    return Sample(
        at, iteration, p.boxes.image_index(k, at[0]), channel, around, in_range[0] & in_range[1],
        (sides[0], sides[1]), (slants[0], slants[1]),
    )  # fmt: skip


def _position(
    k: KernelBuilder, p: PartSampling, at: Sequence[Number], channels: Size, axis: int, step: Number
) -> tuple[Number, Number]:
    """Return a sample's position on an axis, in double precision, and the side of its box."""
    first, last = (p.boxes.rois[at[0], edge] for edge in ((1, 3), (0, 2))[axis])
    scale, dtype = first * 0.0 + p.boxes.scale, p.boxes.precision
    start = times(k, rounded(k, first, dtype), scale, dtype) - 0.5
    side = k.maximum(times(k, rounded(k, last, dtype) + 1, scale, dtype) - 0.5 - start, 0.1)
    wide, cell = k.astype(side, DType.FP64), k.astype(at[2 + axis], DType.FP64)
    step_of_cell = wide / p.boxes.cells[axis]
    position = k.astype(start, DType.FP64) + cell * step_of_cell
    if p.trans is not None:
        position = (
            position
            + p.trans[offset_index(k, p, p.trans, at, channels, 1 - axis)] * p.factor * wide
        )
    return position + k.astype(step, DType.FP64) * (step_of_cell / p.samples), wide


def offset_index(
    k: KernelBuilder,
    p: PartSampling,
    trans: DeviceOperand,
    at: Sequence[Number],
    channels: Size,
    way: int,
) -> tuple[Number, ...]:
    """Return the index in `trans` of a cell's shift: to the right for way 0, down for 1."""
    classes = trans.shape[1] // 2
    number = k.div(at[1], k.size(channels // classes))
    i, j = (k.div(at[2 + a] * p.parts[a], p.boxes.cells[a]) for a in (0, 1))
    return at[0], number * 2 + way, i, j


def pooled(
    k: KernelBuilder, p: PartSampling, images: DeviceOperand, channels: Size,
    Output: DeviceOperand | None, TopCount: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit a kernel for the mean of the in-range samples of each cell, and for their number."""
    s = begin(k, p, channels, images.shape[2:])
    count = k.sum(k.astype(s.counts, images.type.dtype), s.iteration)
    if TopCount is not None:
        k.store(TopCount, s.at, count)
    if Output is not None:
        value = looked(s.corners, lambda corner: _element(images, s, corner))
        k.store(
            Output, s.at, k.sum(k.where(s.counts, value, 0.0), s.iteration) / k.maximum(count, 1.0)
        )


def _element(images: DeviceOperand, s: Sample, corner: Corner) -> Number:
    """Load an element of the image and channel of a sample."""
    at = (s.image_index, s.channel, corner.row, corner.column)
    return images.at(*at, where=corner.inside, other=0)


def image_gradient(
    k: KernelBuilder,
    p: PartSampling,
    TopCount: DeviceOperand,
    d_Output: DeviceOperand,
    d_images: DeviceOperand,
) -> None:
    """Emit kernels that add the gradient of each cell to the elements its samples interpolate."""
    fill(k, d_images, 0)
    s = begin(k, p, d_Output.shape[1], d_images.shape[2:])
    share = d_Output[s.at] / k.maximum(TopCount[s.at], 1.0)
    for corner in s.corners:
        position = (s.image_index, s.channel, corner.row, corner.column)
        k.add(d_images, position, share * corner.share, corner.inside & s.counts)


def offset_gradient(
    k: KernelBuilder,
    p: PartSampling,
    images: DeviceOperand,
    TopCount: DeviceOperand,
    d_Output: DeviceOperand,
    d_Trans: DeviceOperand,
) -> None:
    """Emit kernels that add the gradient of each cell to its shift.

    A sample that lies exactly on an element has slope 0, as in the reference.
    """
    fill(k, d_Trans, 0)
    if p.trans is None:
        return
    channels = d_Output.shape[1]
    s = begin(k, p, channels, images.shape[2:])
    share = d_Output[s.at] / k.maximum(TopCount[s.at], 1.0)
    slopes = moved(s.corners, lambda corner: _element(images, s, corner))
    for axis, slope in enumerate(slopes):
        along = k.sum(k.where(s.counts & s.slants[axis], slope, 0.0), s.iteration)
        at = offset_index(k, p, p.trans, s.at, channels, 1 - axis)
        k.add(d_Trans, at, along * s.sides[axis] * share * p.factor)
