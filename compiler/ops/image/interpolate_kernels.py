"""Device kernels of resampling: one program per element of the output, or of the gradient.

Position and weight of each tap are computed once per axis, in double precision where the
reference's rounding decides between two positions. A gradient is gathered from the outputs that
read an element, so that the order of additions is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.image.interpolate_numpy import CUBIC, axis_ratio, axis_taps
from compiler.ops.image.layouts import channels_first, in_layout
from compiler.ops.shared_kernels import everywhere
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Resampling:
    """One axis of `size` elements resampled to `count`; `factor` is its scale, 0 for none.

    `is_wide` if the elements are float64.
    """

    size: Size
    count: Size
    method: str
    align_corners: bool
    align_mode: int
    factor: float
    is_wide: bool

    @property
    def taps(self) -> int:
        """Number of input elements that an output reads."""
        return {"nearest": 1, "bicubic": 4}.get(self.method, 2)

    @property
    def reach(self) -> Size:
        """Maximum number of outputs that read one element; `count` if sizes are unknown."""
        size, count = self.size, self.count
        if not isinstance(size, int) or not isinstance(count, int):
            return count
        how = (self.method, self.align_corners, self.align_mode, self.factor, self.is_wide)
        positions, _ = axis_taps(size, count, *how)
        reads = [np.unique(row) for row in positions]
        return int(np.bincount(np.concatenate(reads), minlength=1).max())

    def ratio(self, k: KernelBuilder) -> Number:
        """Return `axis_ratio`, also for symbolic sizes."""
        if isinstance(self.size, int) and isinstance(self.count, int):
            return float(axis_ratio(self.size, self.count, self.align_corners, self.factor))
        count, ends = k.size(self.count), int(self.align_corners)
        if self.factor > 0 and not self.align_corners:
            ratio = float(np.float32(1 / self.factor))
        else:
            steps = max(count - ends, 1) if isinstance(count, int) else k.maximum(count - ends, 1)
            size = k.astype(k.size(self.size) - ends, DType.FP64)
            ratio = k.astype(size / k.astype(steps, DType.FP64), DType.FP32)
        if isinstance(count, int):
            return ratio if count > 1 else 0.0
        return k.astype(k.where(count <= 1, 0.0, ratio), DType.FP64)

    def tap(self, k: KernelBuilder, output: Number, tap: Number) -> tuple[Number, Number]:
        """Return position and weight of one tap of an output: one entry of `axis_taps`."""
        ratio, steps = self.ratio(k), k.astype(output, DType.FP64)
        plain, last = k.astype(steps * ratio, DType.FP32), k.size(self.size) - 1
        centred = (steps + 0.5) * ratio - 0.5
        if self.method == "nearest":
            position = plain + 0.5 if self.align_corners else plain
            return k.clip(k.astype(position, DType.INT32), 0, last), 1.0
        if self.method == "bicubic":
            centred = centred if self.is_wide else k.astype(centred, DType.FP32)
            return self._cubic(k, plain if self.align_corners else centred, tap)
        between = self.align_mode == 0 and not self.align_corners
        position = k.astype(k.maximum(centred, 0.0), DType.FP32) if between else plain
        first = k.clip(k.astype(position, DType.INT32), 0, last)
        share = k.astype(position, DType.FP64) - k.astype(first, DType.FP64)
        weight = k.where(k.equal(tap, 0), 1.0 - share, share)
        return k.minimum(first + tap, last), weight

    def _cubic(self, k: KernelBuilder, found: Number, tap: Number) -> tuple[Number, Number]:
        """Return one entry of `cubic_taps`."""
        first = k.floor(found)
        share = k.astype(found, DType.FP64) - k.astype(first, DType.FP64)
        away = k.absolute(share - k.astype(tap - 1, DType.FP64))
        near = (away * (CUBIC + 2) - (CUBIC + 3)) * away * away + 1.0
        far = ((away * CUBIC - 5 * CUBIC) * away + 8 * CUBIC) * away - 4 * CUBIC
        position = k.clip(k.astype(first, DType.INT32) + (tap - 1), 0, k.size(self.size) - 1)
        return position, k.where(away <= 1.0, near, far)


def axes_of(
    sizes: Sequence[Size],
    output_sizes: Sequence[Size],
    method: tuple[str, bool, int],
    factors: Sequence[float],
    is_wide: bool,
) -> list[Resampling]:
    """Return the axes of images; `method` is its name, align_corners, align_mode."""
    pairs = enumerate(zip(sizes, output_sizes, strict=True))
    return [
        Resampling(*pair, *method, factors[a] if factors else 0.0, is_wide) for a, pair in pairs
    ]


def resize(
    k: KernelBuilder, layout: str, axes: Sequence[Resampling], X: DeviceOperand, Out: DeviceOperand
) -> None:
    """Emit kernels for the positions and weights of each axis, and one for Out."""
    dtype = X.type.dtype if X.type.dtype.is_float else DType.FP32
    tables = [_tap_table(k, axis, dtype) for axis in axes]
    indices = k.grid(*Out.shape)
    n, c, *outputs = channels_first(layout, indices)
    taps = [axis.taps for axis in axes]
    r = k.loop(int(np.prod(taps)))
    weight, positions = 1.0, list[Number]()
    for (position, share), output, tap in zip(tables, outputs, k.unravel(r, taps), strict=True):
        positions.append(position[output, tap])
        weight = weight if share is None else share[output, tap] * weight
    value = X[in_layout(layout, (n, c, *positions))]
    if taps[0] > 1:
        value = k.astype(k.sum(k.astype(value, dtype) * weight, r), X.type.dtype)
    k.store(Out, indices, value)


def _tap_table(
    k: KernelBuilder, axis: Resampling, dtype: DType
) -> tuple[DeviceOperand, DeviceOperand | None]:
    """Emit a kernel for the positions and weights [count, taps] of an axis; None for weights 1."""
    positions = k.scratch((axis.count, axis.taps), DType.INT32)
    weights = k.scratch(positions.shape, dtype) if axis.taps > 1 else None
    output, tap = k.grid(*positions.shape)
    position, weight = axis.tap(k, output, tap)
    k.store(positions, (output, tap), position)
    if weights is not None:
        k.store(weights, (output, tap), weight)
    return positions, weights


def resize_gradient(
    k: KernelBuilder,
    layout: str,
    axes: Sequence[Resampling],
    d_Out: DeviceOperand,
    d_X: DeviceOperand,
) -> None:
    """Emit kernels for the outputs that read each position of an axis, and one for d_X."""
    tables = [_inverse_tap_table(k, axis, d_X.type.dtype) for axis in axes]
    indices = k.grid(*d_X.shape)
    n, c, *positions = channels_first(layout, indices)
    reaches = [axis.reach for axis in axes]
    r = k.loop(product(reaches))
    outputs, weight, inside = list[Number](), 1.0, list[Number]()
    operands = zip(axes, tables, positions, k.unravel(r, reaches), strict=True)
    for axis, (first, share), position, iteration in operands:
        outputs.append(first[position] + iteration)
        weight = share[position, iteration] * weight
        inside.append(outputs[-1] < k.size(axis.count))
    upstream = d_Out.at(*in_layout(layout, (n, c, *outputs)), where=everywhere(k, inside), other=0)
    k.store(d_X, indices, k.sum(upstream * weight, r))


def _inverse_tap_table(
    k: KernelBuilder, axis: Resampling, dtype: DType
) -> tuple[DeviceOperand, DeviceOperand]:
    """Emit kernels for the first output that reads each position, and the weights from there on.

    They are [size] and [size, reach]; an output that does not read the position has weight 0.
    """
    first = k.scratch((axis.size,), DType.INT32)
    (position,) = k.grid(axis.size)
    r = k.loop(product((axis.count, axis.taps)))
    output, tap = k.div(r, axis.taps), k.mod(r, axis.taps)
    is_read = k.equal(axis.tap(k, output, tap)[0], position)
    candidate = k.where(is_read, k.astype(output, DType.INT32), k.size(axis.count))
    k.store(first, (position,), k.min(k.astype(candidate, DType.INT32), r))
    shares = k.scratch((axis.size, axis.reach), dtype)
    position, iteration = k.grid(*shares.shape)
    tap = k.loop(axis.taps)
    output = first[position] + iteration
    is_read, weight = axis.tap(k, output, tap)
    reads = k.equal(is_read, position) & (output < k.size(axis.count))
    share = k.where(reads, k.astype(weight, DType.FP64), 0.0)
    k.store(shares, (position, iteration), k.sum(share, tap))
    return first, shares
