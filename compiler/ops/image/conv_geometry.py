"""Geometry of convolutions for device kernels: layout, groups, and windows on each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd, prod

from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.image.windows import (
    HWIO,
    HWOI,
    OIHW,
    Axis,
    WindowGeometry,
    filters_first,
    in_layout,
    is_channels_last,
)
from compiler.support.thresholds import threshold

MIN_TILE_SIDE = threshold(
    "group_side", 8, "filters or channels of a group",
    "convolutions with fewer do without tiles, which would be mostly empty", small=2,
)  # fmt: skip

SKIPPED_TAPS = threshold(
    "skipped_taps", 16, "taps per tap that covers an element",
    "an image gradient reads for each element only the taps that cover it", small=2,
)  # fmt: skip

CHANNEL_BLOCK = 8
"""Adjacent channels that are reduced together, a sector of float32, before the next tap."""

PositionsInBounds = tuple[list[Number], Number | None]
"""Position of a window element on each axis, and whether it is in bounds; None if it always is."""

ConvOperands = tuple[DeviceOperand, DeviceOperand, DeviceOperand]
"""Images, filters and outputs."""


@dataclass(frozen=True)
class Windows(WindowGeometry):
    """A convolution of `images` to `outputs` in a layout: groups, and windows on each axis."""

    layout: str
    groups: int
    axes: tuple[Axis, ...]
    filters: str = OIHW

    @property
    def sizes(self) -> list[Size]:
        """Sizes of an image."""
        return [axis.size for axis in self.axes]

    @property
    def last(self) -> bool:
        """True where the channels are the innermost axis."""
        return is_channels_last(self.layout)

    def is_narrow(self, *sides: Size) -> bool:
        """True where a dimension of the per-group matrix product is too short for tiles."""
        least = MIN_TILE_SIDE.value
        return self.groups > 1 and any(isinstance(n, int) and n < least for n in sides)

    @property
    def skips_taps(self) -> bool:
        """True where most taps of a window never cover the same element of an image."""
        steps = (tap_step(axis) for axis in self.axes)
        pairs = zip(self.taps, steps, strict=True)
        return prod(min(n, step) if isinstance(n, int) else step for n, step in pairs) >= (
            SKIPPED_TAPS.value
        )

    def sides(self, filters: DeviceOperand) -> tuple[Size, Size]:
        """Number of filters, and number of channels that each of them reads."""
        count, depth, *_ = filters_first(self.filters, filters.shape)
        return count, depth

    def at(
        self, images: DeviceOperand, n: Number, c: Number, positions: Sequence[Number],
        where: Number | None = None,
    ) -> Number:  # fmt: skip
        """Load an element of a batch; 0 where `where` is false."""
        return images.at(*in_layout(self.layout, (n, c, *positions)), where=where, other=0)

    def weight(
        self, filters: DeviceOperand, f: Number, c: Number, tap: Sequence[Number],
        where: Number | None = None,
    ) -> Number:  # fmt: skip
        """Load an element of a filter; 0 where `where` is false."""
        orders = {OIHW: (f, c, *tap), HWIO: (*tap, c, f), HWOI: (*tap, f, c)}
        return filters.at(*orders[self.filters], where=where, other=0)

    def reduction_shape(self, channels: Size) -> list[Size]:
        """Return the reduction shape over channels and taps, innermost axis of images last.

        With blocks of channels, these are first: the taps of a channel are adjacent in a filter, so
        that a block's part of the filters stays in the cache while all its taps are used.
        """
        if self.has_channel_blocks(channels):
            return [channels // CHANNEL_BLOCK, *self.taps, CHANNEL_BLOCK]
        return [*self.taps, channels] if self.last else [channels, *self.taps]

    def has_channel_blocks(self, channels: Size) -> bool:
        """True if images have channels last and filters taps last, more than one."""
        differ = self.last and self.filters == OIHW and product(self.taps) != 1
        return differ and channels != CHANNEL_BLOCK and is_multiple(channels, CHANNEL_BLOCK)

    def unravel(
        self, k: KernelBuilder, iteration: Number, channels: Size
    ) -> tuple[Number, list[Number]]:
        """Return the channel and the tap of a reduction index."""
        indices = k.unravel(iteration, self.reduction_shape(channels))
        if self.has_channel_blocks(channels):
            block, *taps, channel = indices
            return block * CHANNEL_BLOCK + channel, taps
        return (indices[-1], [*indices[:-1]]) if self.last else (indices[0], [*indices[1:]])

    def plain(self, images: DeviceOperand, filters: DeviceOperand, outputs: DeviceOperand) -> tuple[
        Windows, ConvOperands
    ]:  # fmt: skip
        """Return the geometry with one axis of positions if each window covers one position."""
        if not all(axis.is_identity for axis in self.axes):
            return self, (images, filters, outputs)
        batch, positions = images.shape[0], product(self.sizes)
        if self.last:
            batch, positions = 1, positions * batch
        count, depth = self.sides(filters)
        channel = -1 if self.last else 1
        flat_images, result = (
            operand.reshaped(in_layout(self.layout, (batch, operand.shape[channel], positions)))
            for operand in (images, outputs)
        )
        matrices = {OIHW: (count, depth, 1), HWIO: (1, depth, count), HWOI: (1, count, depth)}
        axis = Axis(positions, 1, 1, 1, 0, 0, positions)
        return replace(self, axes=(axis,)), (
            flat_images,
            filters.reshaped(matrices[self.filters]),
            result,
        )


def input_positions(
    k: KernelBuilder, axes: Sequence[Axis], positions: Sequence[Number], taps: Sequence[Number]
) -> PositionsInBounds:
    """Return the image positions under taps of windows."""
    indices: list[Number] = []
    inside: Number | None = None
    for axis, position, tap in zip(axes, positions, taps, strict=True):
        shift = times(tap, axis.dilation) - k.size(axis.before)
        at = plus(shift, times(position, axis.stride))
        if not axis.is_padless:
            inside = both(inside, within(k, at, shift, (axis.count - 1) * axis.stride, axis.size))
        indices.append(at)
    return indices, inside


def output_positions(
    k: KernelBuilder, axes: Sequence[Axis], positions: Sequence[Number], taps: Sequence[Number]
) -> PositionsInBounds:
    """Return the windows that cover a position with a tap, and whether such a window exists."""
    indices: list[Number] = []
    inside: Number | None = None
    for axis, position, tap in zip(axes, positions, taps, strict=True):
        shift = k.size(axis.before) - times(tap, axis.dilation)
        start = plus(shift, position)
        limit = axis.count * axis.stride
        fits = within(k, start, shift, axis.size - 1, limit)
        if axis.stride > 1:
            fits = both(fits, k.equal(k.mod(start, axis.stride), 0))
        inside = both(inside, fits)
        indices.append(k.div(start, axis.stride))
    return indices, inside


def tap_step(axis: Axis) -> int:
    """The distance of two taps that cover the same element in neighbouring windows."""
    return axis.stride // gcd(axis.stride, axis.dilation)


def covering_counts(axes: Sequence[Axis]) -> list[Size]:
    """The maximum number of taps that cover an element, on each axis."""
    return [(axis.kernel + (tap_step(axis) - 1)) // tap_step(axis) for axis in axes]


def covering_taps(
    k: KernelBuilder, axes: Sequence[Axis], positions: Sequence[Number], numbers: Sequence[Number]
) -> PositionsInBounds:
    """Return the taps that cover a position in windows, by number, and whether they exist.

    Where a gap between windows is at the position, the taps cover none; see `output_positions`.
    """
    taps: list[Number] = []
    inside: Number | None = None
    for axis, position, number in zip(axes, positions, numbers, strict=True):
        step, common = tap_step(axis), gcd(axis.stride, axis.dilation)
        tap = number
        if step > 1:
            start = k.div(plus(k.size(axis.before), position), common)
            first = times(k.mod(start, step), pow(axis.dilation // common, -1, step))
            tap = plus(times(number, step), k.mod(first, step))
            inside = both(inside, tap < k.size(axis.kernel))
        taps.append(tap)
    return taps, inside


def within(k: KernelBuilder, at: Number, shift: Number, reach: Size, size: Size) -> Number:
    """Test if `at` is on the axis, where `at - shift` is at most `reach`; True if it always is."""
    if not (isinstance(shift, int) and isinstance(reach, int) and isinstance(size, int)):
        return every(at >= 0, at < k.size(size))
    return every(shift >= 0 or at >= 0, shift + reach < size or at < size)


def both(a: Number | None, b: Number) -> Number:
    """Return the conjunction of two conditions; the first may be None, either may be a constant."""
    if a is False or b is False:
        return False
    if a is None or a is True:
        return b
    return a if b is True else a & b


def every(*conditions: Number) -> Number:
    """Return the conjunction of several conditions."""
    return reduce(both, conditions)


def plus(first: Number, number: Number) -> Number:
    """Return a sum, folding a zero."""
    return number if isinstance(first, int) and first == 0 else first + number


def times(number: Number, factor: int) -> Number:
    """Return a product, folding a factor of 1."""
    return number if factor == 1 else number * factor
