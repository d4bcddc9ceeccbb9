"""Device kernels of convolutions with few products per element, above all depthwise.

An element of the result has one program, and its few products are unrolled, so that neighbouring
programs read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.windows import ConvGeometry
from compiler.ops.image.conv_geometry import (
    both,
    covering_counts,
    covering_taps,
    filter_element,
    filter_sides,
    image_element,
    input_positions,
    output_positions,
    plus,
    skips_taps,
)
from compiler.ops.image.layouts import channels_first
from compiler.ops.image.unrolled_reductions import UnrolledReduction
from compiler.ops.norm.channel_kernels import upcast

MAX_TAPS = 3
"""Maximum number of taps that one program accumulates at once: each needs registers."""


def reduce_terms(
    k: KernelBuilder, sizes: Sequence[Size], term: Callable[[Number, Sequence[Number]], Number]
) -> Number:
    """Return the sum of terms over channels and taps."""
    reduction = UnrolledReduction(k, sizes)
    return reduction.fold("sum", [term(c, tap) for c, *tap in reduction.all])


def convolve_narrow(
    k: KernelBuilder,
    g: ConvGeometry,
    images: DeviceOperand,
    filters: DeviceOperand,
    outputs: DeviceOperand,
    bias: DeviceOperand | None,
) -> None:
    """Emit the forward kernel of groups with few filters."""
    count, depth = filter_sides(g, filters)
    index = k.grid(*outputs.shape)
    n, f, *y = channels_first(g.layout, index)
    first = times_group(k, f, count // g.groups, depth)

    def term(c: Number, tap: Sequence[Number]) -> Number:
        at, inside = input_positions(k, g.windows, y, tap)
        pixel = image_element(g, images, n, plus(c, first), at, inside)
        return upcast(k, pixel) * upcast(k, filter_element(g, filters, f, c, tap))

    total = reduce_terms(k, [depth, *g.taps], term)
    k.store(outputs, index, total if bias is None else total + bias[f])


def times_group(k: KernelBuilder, channel: Number, each: Size, other: Size) -> Number:
    """Return the first channel, on the other side of the convolution, of a channel's group."""
    group = k.div(channel, k.size(each))
    return group if isinstance(other, int) and other == 1 else group * k.size(other)


def image_gradient_narrow(
    k: KernelBuilder,
    g: ConvGeometry,
    outputs: DeviceOperand,
    filters: DeviceOperand,
    images: DeviceOperand,
    bias: DeviceOperand | None,
) -> None:
    """Emit the image gradient of groups with few channels, or of windows that are far apart."""
    count, depth = filter_sides(g, filters)
    per_group, index = count // g.groups, k.grid(*images.shape)
    n, c, *x = channels_first(g.layout, index)
    inner, first = k.mod(c, k.size(depth)), times_group(k, c, depth, per_group)

    def term(f: Number, tap: Sequence[Number]) -> Number:
        exists = None
        if skips_taps(k, g):
            tap, exists = covering_taps(k, g.windows, x, tap)
        at, inside = output_positions(k, g.windows, x, tap)
        f = plus(f, first)
        inside = inside if exists is None else both(inside, exists)
        upstream = image_element(g, outputs, n, f, at, inside)
        return upcast(k, upstream) * upcast(k, filter_element(g, filters, f, inner, tap, exists))

    taps = covering_counts(g.windows) if skips_taps(k, g) else g.taps
    total = reduce_terms(k, [per_group, *taps], term)
    k.store(images, index, total if bias is None else total + bias[c])


def filter_gradient_narrow(
    k: KernelBuilder,
    g: ConvGeometry,
    images: DeviceOperand,
    outputs: DeviceOperand,
    filters: DeviceOperand,
) -> None:
    """Emit the filter gradient of narrow groups; a program accumulates a whole row of taps."""
    count, depth, *rest, last = filters.shape
    unrolled = [[t] for t in range(last)] if isinstance(last, int) and last <= MAX_TAPS else []
    c, *tap, f = k.grid(depth, *rest, *([] if unrolled else [last]), count)
    reduction = [images.shape[0], *g.counts]
    r = k.loop(product(reduction))
    n, *y = k.unravel(r, reduction)
    upstream = upcast(k, image_element(g, outputs, n, f, y))
    channel = plus(times_group(k, f, count // g.groups, depth), c)
    for end in unrolled or [[]]:
        at, inside = input_positions(k, g.windows, y, [*tap, *end])
        pixel = upcast(k, image_element(g, images, n, channel, at, inside))
        k.store(filters, (f, c, *tap, *end), k.sum(pixel * upstream, r))
