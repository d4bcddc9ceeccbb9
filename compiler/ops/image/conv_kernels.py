"""Device kernels of convolution as implicit matrix products: operands are indexed, not gathered.

Of the filters, positions and taps, two are M and N of the product and one is reduced:

    forward            positions x filters,         reduced over taps and channels
    image gradient     image positions x channels,  reduced over taps and filters
    filter gradient    filters x taps and channels, reduced over positions

With channels first, M and N of the first two are swapped: the axis that is contiguous in memory is
N. Groups are a batch of products; narrow ones have separate kernels. Where each window covers one
position, as with 1x1 filters, the images are used as matrices directly. A transposed convolution
is the image gradient, and its gradients are the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.windows import ConvGeometry
from compiler.ops.image.conv_geometry import (
    filter_element,
    filter_sides,
    image_element,
    input_positions,
    is_narrow,
    output_positions,
    plus,
    reduction_shape,
    skips_taps,
    unravel_taps,
    with_flat_images,
)
from compiler.ops.image.depthwise_kernels import (
    convolve_narrow,
    filter_gradient_narrow,
    image_gradient_narrow,
)
from compiler.ops.image.layouts import channels_first, in_layout
from compiler.ops.math.reduce import sum_axes

Indices: TypeAlias = Sequence[Number]
Factor: TypeAlias = Callable[[Indices, Number, Number], Number]
"""Loads a factor at a group (if there are several), an M or N index, and a reduction index."""

Store: TypeAlias = Callable[[Indices, Number, Number, Number], None]
"""Stores the sum of a group at a position and a channel."""


def first_channel(k: KernelBuilder, group: Indices, each: Size) -> Number:
    """Return the first channel of a group."""
    return group[0] * k.size(each) if group else 0


def emit_product(
    k: KernelBuilder, g: ConvGeometry, sides: tuple[Size, Size, Size],
    factors: tuple[Factor, Factor], store: Store,
) -> None:  # fmt: skip
    """Emit products of positions and channels, with the axis that is contiguous in memory as N."""
    positions, channels, reduction = sides
    pixel, weight = factors

    def ordered(
        group: Indices, i: Number, j: Number, left: Number, right: Number
    ) -> tuple[Number, Number]:
        if g.channels_last:
            return pixel(group, i, left), weight(group, j, right)
        return weight(group, i, left), pixel(group, j, right)

    def finish(group: Indices, i: Number, j: Number, total: Number) -> None:
        store(group, *((i, j) if g.channels_last else (j, i)), total)

    rows, columns = (positions, channels) if g.channels_last else (channels, positions)
    k.contraction(g.stack, (rows, columns, reduction), ordered, finish)


def output_store(
    k: KernelBuilder, g: ConvGeometry, positions: Sequence[Size], each: Size, out: DeviceOperand,
    bias: DeviceOperand | None,
) -> Store:  # fmt: skip
    """Return a function that stores a sum plus bias; `each` is the channels per group."""

    def store(group: Indices, position: Number, channel: Number, total: Number) -> None:
        n, *at = k.unravel(position, positions)
        c = plus(first_channel(k, group, each), channel)
        k.store(out, in_layout(g.layout, (n, c, *at)), total if bias is None else total + bias[c])

    return store


def expect_channels(
    k: KernelBuilder, g: ConvGeometry, images: DeviceOperand, filters: DeviceOperand,
    outputs: DeviceOperand,
) -> None:  # fmt: skip
    """Require images and outputs to have the channels of the filters."""
    count, depth = filter_sides(g, filters)
    channel_counts = (
        channels_first(g.layout, images.shape)[1],
        channels_first(g.layout, outputs.shape)[1],
    )
    k.expect_size("channels of the images", channel_counts[0], depth * g.groups)
    k.expect_size("channels of the outputs", channel_counts[1], count)


def convolve(
    k: KernelBuilder,
    g: ConvGeometry,
    images: DeviceOperand,
    filters: DeviceOperand,
    outputs: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:
    """outputs[n, f, y] = bias[f] + Σ filters[f, c, i] images[n, c, s·y + d·i - p]."""
    expect_channels(k, g, images, filters, outputs)
    if k.convolution(g, images, filters, outputs, bias):
        return
    g, (images, filters, outputs) = with_flat_images(g, images, filters, outputs)
    count, depth = filter_sides(g, filters)
    per_group, positions = count // g.groups, [images.shape[0], *g.counts]
    if is_narrow(g, per_group):
        convolve_narrow(k, g, images, filters, outputs, bias)
        return

    def pixel(group: Indices, position: Number, iteration: Number) -> Number:
        n, *y = k.unravel(position, positions)
        c, tap = unravel_taps(k, g, iteration, depth)
        at, inside = input_positions(k, g.windows, y, tap)
        return image_element(g, images, n, plus(first_channel(k, group, depth), c), at, inside)

    def weight(group: Indices, f: Number, iteration: Number) -> Number:
        c, tap = unravel_taps(k, g, iteration, depth)
        return filter_element(g, filters, plus(first_channel(k, group, per_group), f), c, tap)

    sides = (product(positions), per_group, product(reduction_shape(g, depth)))
    emit_product(
        k, g, sides, (pixel, weight), output_store(k, g, positions, per_group, outputs, bias)
    )


def image_gradient(
    k: KernelBuilder,
    g: ConvGeometry,
    outputs: DeviceOperand,
    filters: DeviceOperand,
    images: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:
    """images[n, c, x] = bias[c] + Σ filters[f, c, i] outputs[n, f, y] where s·y + d·i - p = x."""
    expect_channels(k, g, images, filters, outputs)
    if k.convolution_image_gradient(g, outputs, filters, images, bias):
        return
    g, (images, filters, outputs) = with_flat_images(g, images, filters, outputs)
    count, depth = filter_sides(g, filters)
    per_group, positions = count // g.groups, [images.shape[0], *g.sizes]
    if is_narrow(g, depth) or skips_taps(g):
        image_gradient_narrow(k, g, outputs, filters, images, bias)
        return

    def upstream(group: Indices, position: Number, iteration: Number) -> Number:
        n, *x = k.unravel(position, positions)
        f, tap = unravel_taps(k, g, iteration, per_group)
        at, inside = output_positions(k, g.windows, x, tap)
        return image_element(g, outputs, n, plus(first_channel(k, group, per_group), f), at, inside)

    def weight(group: Indices, c: Number, iteration: Number) -> Number:
        f, tap = unravel_taps(k, g, iteration, per_group)
        return filter_element(g, filters, plus(first_channel(k, group, per_group), f), c, tap)

    sides = (product(positions), depth, product(reduction_shape(g, per_group)))
    emit_product(
        k, g, sides, (upstream, weight), output_store(k, g, positions, depth, images, bias)
    )


def filter_gradient(
    k: KernelBuilder,
    g: ConvGeometry,
    images: DeviceOperand,
    outputs: DeviceOperand,
    filters: DeviceOperand,
) -> None:
    """filters[f, c, i] = Σ outputs[n, f, y] images[n, c, s·y + d·i - p] over n and y."""
    expect_channels(k, g, images, filters, outputs)
    if k.convolution_filter_gradient(g, images, outputs, filters):
        return
    g, (images, filters, outputs) = with_flat_images(g, images, filters, outputs)
    count, depth = filter_sides(g, filters)
    per_group, reduction = count // g.groups, [images.shape[0], *g.counts]
    if is_narrow(g, per_group, depth):
        filter_gradient_narrow(k, g, images, outputs, filters)
        return

    def factors(
        group: Indices, i: Number, j: Number, left: Number, right: Number
    ) -> tuple[Number, Number]:
        n, *y = k.unravel(left, reduction)
        upstream = image_element(g, outputs, n, plus(first_channel(k, group, per_group), i), y)
        (n, *y), (c, tap) = k.unravel(right, reduction), unravel_taps(k, g, j, depth)
        at, inside = input_positions(k, g.windows, y, tap)
        channel = plus(first_channel(k, group, depth), c)
        return upstream, image_element(g, images, n, channel, at, inside)

    def store(group: Indices, i: Number, j: Number, total: Number) -> None:
        c, tap = unravel_taps(k, g, j, depth)
        k.store(filters, (plus(first_channel(k, group, per_group), i), c, *tap), total)

    sides = (per_group, product(reduction_shape(g, depth)), product(reduction))
    k.contraction(g.stack, sides, factors, store)


def channel_sums(k: KernelBuilder, layout: str, images: DeviceOperand, sums: DeviceOperand) -> None:
    """sums[c] = the sum of all elements of channel c: the gradient of a bias."""
    positions = channels_first(layout, tuple(range(len(images.shape))))
    axes = tuple(sorted(int(str(axis)) for axis in (positions[0], *positions[2:])))
    sum_axes(k, images, axes, sums)
