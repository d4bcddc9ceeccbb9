"""Indices of device kernels of convolutions: elements, reductions, and positions of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import gcd, prod

from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.windows import HWIO, HWOI, OIHW, ConvGeometry, Window
from compiler.ops.image.layouts import filters_first, in_layout
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


def filter_sides(g: ConvGeometry, filters: DeviceOperand) -> tuple[Size, Size]:
    """Return the number of filters, and the number of channels that each of them reads."""
    count, depth, *_ = filters_first(g.filters, filters.shape)
    return count, depth


def is_narrow(g: ConvGeometry, *sides: Size) -> bool:
    """True where a dimension of the per-group matrix product is too short for tiles."""
    least = MIN_TILE_SIDE.value
    return g.groups > 1 and any(isinstance(n, int) and n < least for n in sides)


def skips_taps(k: KernelBuilder, g: ConvGeometry) -> bool:
    """True where an image gradient reads only taps that cover an element.

    On a CPU others cost less than finding them, unless most of a window are others.
    """
    pairs = [(window.kernel, window.tap_step) for window in g.windows]
    taps = prod(min(n, step) if isinstance(n, int) else step for n, step in pairs)
    return taps >= SKIPPED_TAPS.value or (k.on_gpu and taps > 1)


def image_element(
    g: ConvGeometry, images: DeviceOperand, n: Number, c: Number, positions: Sequence[Number],
    where: Number | None = None,
) -> Number:  # fmt: skip
    """Load an element of a batch of images; 0 where `where` is false."""
    return images.at(*in_layout(g.layout, (n, c, *positions)), where=where, other=0)


def filter_element(
    g: ConvGeometry, filters: DeviceOperand, f: Number, c: Number, tap: Sequence[Number],
    where: Number | None = None,
) -> Number:  # fmt: skip
    """Load an element of a filter; 0 where `where` is false."""
    orders = {OIHW: (f, c, *tap), HWIO: (*tap, c, f), HWOI: (*tap, f, c)}
    return filters.at(*orders[g.filters], where=where, other=0)


def reduction_shape(
    g: ConvGeometry, channels: Size, taps: Sequence[Number] | None = None
) -> list[Number]:
    """Return the reduction shape over channels and taps, innermost axis of images last.

    With blocks of channels, these are first: the taps of a channel are adjacent in a filter, so
    that a block's part of the filters stays in the cache while all its taps are used. `taps` are
    the numbers of those on each axis, by default all.
    """
    taps = g.taps if taps is None else taps
    if has_channel_blocks(g, channels):
        return [channels // CHANNEL_BLOCK, *taps, CHANNEL_BLOCK]
    return [*taps, channels] if g.channels_last else [channels, *taps]


def has_channel_blocks(g: ConvGeometry, channels: Size) -> bool:
    """True if images have channels last and filters taps last, more than one."""
    differ = g.channels_last and g.filters == OIHW and product(g.taps) != 1
    return differ and channels != CHANNEL_BLOCK and is_multiple(channels, CHANNEL_BLOCK)


def unravel_taps(
    k: KernelBuilder, g: ConvGeometry, iteration: Number, channels: Size,
    counts: Sequence[Number] | None = None,
) -> tuple[Number, list[Number]]:  # fmt: skip
    """Return the channel and the tap of an index of `reduction_shape`."""
    indices = k.unravel(iteration, reduction_shape(g, channels, counts))
    if has_channel_blocks(g, channels):
        block, *taps, channel = indices
        return block * CHANNEL_BLOCK + channel, taps
    return (indices[-1], [*indices[:-1]]) if g.channels_last else (indices[0], [*indices[1:]])


def with_flat_images(
    g: ConvGeometry, images: DeviceOperand, filters: DeviceOperand, outputs: DeviceOperand
) -> tuple[ConvGeometry, ConvOperands]:
    """Return the convolution with one axis of positions if each window covers one position."""
    if not all(window.is_identity for window in g.windows):
        return g, (images, filters, outputs)
    batch, positions = images.shape[0], product(g.sizes)
    if g.channels_last:
        batch, positions = 1, positions * batch
    count, depth = filter_sides(g, filters)
    channel = -1 if g.channels_last else 1
    flat_images, result = (
        operand.reshaped(in_layout(g.layout, (batch, operand.shape[channel], positions)))
        for operand in (images, outputs)
    )
    matrices = {OIHW: (count, depth, 1), HWIO: (1, depth, count), HWOI: (1, count, depth)}
    window = Window(positions, 1, 1, 1, 0, 0, positions)
    flat_filters = filters.reshaped(matrices[g.filters])
    return replace(g, windows=(window,)), (flat_images, flat_filters, result)


def input_positions(
    k: KernelBuilder, windows: Sequence[Window], positions: Sequence[Number], taps: Sequence[Number]
) -> PositionsInBounds:
    """Return the image positions under taps of windows."""
    indices: list[Number] = []
    inside: Number | None = None
    for window, position, tap in zip(windows, positions, taps, strict=True):
        shift = times(tap, window.dilation) - k.size(window.before)
        at = plus(shift, times(position, window.stride))
        if not window.is_padless:
            reach = (window.count - 1) * window.stride
            inside = both(inside, within(k, at, shift, reach, window.size))
        indices.append(at)
    return indices, inside


def output_positions(
    k: KernelBuilder, windows: Sequence[Window], positions: Sequence[Number], taps: Sequence[Number]
) -> PositionsInBounds:
    """Return the windows that cover a position with a tap, and whether such a window exists."""
    indices: list[Number] = []
    inside: Number | None = None
    for window, position, tap in zip(windows, positions, taps, strict=True):
        shift = k.size(window.before) - times(tap, window.dilation)
        start = plus(shift, position)
        limit = window.count * window.stride
        fits = within(k, start, shift, window.size - 1, limit)
        if window.stride > 1:
            fits = both(fits, k.equal(k.mod(start, window.stride), 0))
        inside = both(inside, fits)
        indices.append(k.div(start, window.stride))
    return indices, inside


def covering_counts(windows: Sequence[Window]) -> list[Size]:
    """The maximum number of taps that cover an element, on each window."""
    return [(window.kernel + (window.tap_step - 1)) // window.tap_step for window in windows]


def covering_taps(
    k: KernelBuilder,
    windows: Sequence[Window],
    positions: Sequence[Number],
    numbers: Sequence[Number],
) -> PositionsInBounds:
    """Return the taps that cover a position in windows, by number, and whether they exist.

    Where a gap between windows is at the position, the taps cover none; see `output_positions`.
    """
    taps: list[Number] = []
    inside: Number | None = None
    for window, position, number in zip(windows, positions, numbers, strict=True):
        step, common = window.tap_step, gcd(window.stride, window.dilation)
        tap = number
        if step > 1:
            start = k.div(plus(k.size(window.before), position), common)
            first = times(k.mod(start, step), pow(window.dilation // common, -1, step))
            tap = plus(times(number, step), k.mod(first, step))
            inside = both(inside, tap < k.size(window.kernel))
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
