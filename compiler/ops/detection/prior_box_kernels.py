"""Device kernels of prior boxes: one program per position of a feature map and box."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape
from compiler.ops.detection.box_coder_kernels import real
from compiler.ops.shared_kernels import listed

Coordinate = Callable[[int, Number], Number]
"""Image coordinate of a feature map index, in double precision: by axis, 0 for x."""


def image_coordinates(
    k: KernelBuilder,
    sizes: Sequence[Size],
    image: Sequence[Size],
    steps: Sequence[float],
    offset: float,
) -> Coordinate:
    """Return image coordinates at `offset` within each step; steps of 0 divide the image evenly."""

    def position(axis: int, at: Number) -> Number:
        step = steps[1 - axis] or real(k, image[1 - axis]) / real(k, sizes[1 - axis])
        return (k.astype(at, DType.FP64) + offset) * step

    return position


def priors(
    k: KernelBuilder,
    around: Sequence[Sequence[float]],
    sizes: Shape,
    position: Coordinate,
    image: Shape | None,
    within: tuple[float, float] | None,
    boxes: DeviceOperand | None,
) -> None:
    """Emit a kernel for boxes [H, W, priors, 4] whose edges are at offsets `around` each position.

    They are divided by the size of `image`, and clipped to `within`, if those are passed.
    """
    if boxes is None:
        return
    y, x, prior = k.grid(*sizes, len(around))
    for edge, shifts in enumerate(zip(*around, strict=True)):
        axis = edge % 2
        value = position(axis, x if axis == 0 else y) + listed(k, prior, shifts, DType.FP64)
        value = value if image is None else value / real(k, image[1 - axis])
        clipped = value if within is None else k.clip(value, *within)
        k.store(boxes, (y, x, prior, edge), clipped)


def spread(k: KernelBuilder, variances: Sequence[float], out: DeviceOperand | None) -> None:
    """Emit a kernel that broadcasts the variances of a box to all boxes."""
    if out is not None:
        at = k.grid(*out.shape)
        k.store(out, at, listed(k, at[-1], variances, out.type.dtype))
