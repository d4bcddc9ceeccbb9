"""Device kernels of convolutions with narrow groups, above all depthwise: bandwidth-bound.

An element of the result has one program, and its few products are unrolled, so that neighbouring
programs read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.image.conv_geometry import Windows, plus, seeing, seen
from compiler.ops.image.unrolled_reductions import Turns
from compiler.ops.image.windows import channels_first
from compiler.ops.norm.norm_kernels import wide

AT_ONCE = 3
"""Maximum number of taps that one program accumulates at once: each needs registers."""


def summed(
    k: KernelBuilder, sizes: Sequence[Size], term: Callable[[Number, Sequence[Number]], Number]
) -> Number:
    """Return the sum of terms over channels and taps."""
    turns = Turns(k, sizes)
    return turns.fold("sum", [term(c, tap) for c, *tap in turns.all])


def convolve_narrow(
    k: KernelBuilder,
    g: Windows,
    images: DeviceOperand,
    filters: DeviceOperand,
    outputs: DeviceOperand,
    bias: DeviceOperand | None,
) -> None:
    """Emit the forward kernel of groups with few filters."""
    count, depth = g.sides(filters)
    own = k.grid(*outputs.shape)
    n, f, *y = channels_first(g.layout, own)
    first = times_group(k, f, count // g.groups, depth)

    def term(c: Number, tap: Sequence[Number]) -> Number:
        at, inside = seen(k, g.axes, y, tap)
        pixel = g.at(images, n, plus(c, first), at, inside)
        return wide(k, pixel) * wide(k, g.weight(filters, f, c, tap))

    total = summed(k, [depth, *g.taps], term)
    k.store(outputs, own, total if bias is None else total + bias[f])


def times_group(k: KernelBuilder, channel: Number, each: Size, other: Size) -> Number:
    """Return the first channel, on the other side of the convolution, of a channel's group."""
    group = k.div(channel, k.size(each))
    return group if isinstance(other, int) and other == 1 else group * k.size(other)


def image_gradient_narrow(
    k: KernelBuilder,
    g: Windows,
    outputs: DeviceOperand,
    filters: DeviceOperand,
    images: DeviceOperand,
    bias: DeviceOperand | None,
) -> None:
    """Emit the image gradient of groups with few channels."""
    count, depth = g.sides(filters)
    each, own = count // g.groups, k.grid(*images.shape)
    n, c, *x = channels_first(g.layout, own)
    inner, first = k.mod(c, k.size(depth)), times_group(k, c, depth, each)

    def term(f: Number, tap: Sequence[Number]) -> Number:
        at, inside = seeing(k, g.axes, x, tap)
        f = plus(f, first)
        above = g.at(outputs, n, f, at, inside)
        return wide(k, above) * wide(k, g.weight(filters, f, inner, tap))

    total = summed(k, [each, *g.taps], term)
    k.store(images, own, total if bias is None else total + bias[c])


def filter_gradient_narrow(
    k: KernelBuilder,
    g: Windows,
    images: DeviceOperand,
    outputs: DeviceOperand,
    filters: DeviceOperand,
) -> None:
    """Emit the filter gradient of narrow groups; a program accumulates a whole row of taps."""
    count, depth, *rest, last = filters.shape
    ends = [[t] for t in range(last)] if isinstance(last, int) and last <= AT_ONCE else []
    c, *tap, f = k.grid(depth, *rest, *([] if ends else [last]), count)
    turns = [images.shape[0], *g.counts]
    r = k.loop(product(turns))
    n, *y = k.unravel(r, turns)
    above = wide(k, g.at(outputs, n, f, y))
    channel = plus(times_group(k, f, count // g.groups, depth), c)
    for end in ends or [[]]:
        at, inside = seen(k, g.axes, y, [*tap, *end])
        pixel = wide(k, g.at(images, n, channel, at, inside))
        k.store(filters, (f, c, *tap, *end), k.sum(pixel * above, r))
