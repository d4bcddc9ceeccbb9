"""Device kernels of convolution as implicit matrix products: operands are indexed, not gathered.

Of the filters, positions and taps, two are M and N of the product and one is reduced:

    forward            positions x filters,         reduced over taps and channels
    image gradient     image positions x channels,  reduced over taps and filters
    filter gradient    filters x taps and channels, reduced over positions

With channels first, M and N of the first two are swapped: the axis that is contiguous in memory is
N. Groups are a batch of products; narrow ones have separate kernels. Where each window covers one
position, as with 1x1 filters, the images are used as matrices directly. On a GPU the image
gradient of a stride is a batch of products, too, one for each phase (`conv_phases`). A transposed
convolution is the image gradient, and its gradients are the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import TypeAlias

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Lengths, Number
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
from compiler.ops.image.conv_phases import (
    Phase,
    covering_windows,
    elements_exist,
    most_taps,
    phase_length,
)
from compiler.ops.image.depthwise_kernels import (
    convolve_narrow,
    filter_gradient_narrow,
    image_gradient_narrow,
)
from compiler.ops.image.layouts import channels_first, in_layout
from compiler.ops.math.reduce import sum_axes
from compiler.support.dataclass import dataclass

Indices: TypeAlias = Sequence[Number]
Factor: TypeAlias = Callable[[Indices, Number, Number], Number]
"""Loads a factor at batch indices, an M or N index, and a reduction index."""

Store: TypeAlias = Callable[[Indices, Number, Number, Number], None]
"""Stores the sum at batch indices, a position and a channel."""


def first_channel(k: KernelBuilder, group: Indices, each: Size) -> Number:
    """Return the first channel of a group."""
    return group[0] * k.size(each) if group else 0


def emit_product(
    k: KernelBuilder, g: ConvGeometry, stack: Sequence[Size], sides: tuple[Size, Size, Size],
    factors: tuple[Factor, Factor], store: Store, lengths: Lengths | None = None,
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
    k.contraction(stack, (rows, columns, reduction), ordered, finish, lengths=lengths)


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

    store = output_store(k, g, positions, per_group, outputs, bias)
    sides = (product(positions), per_group, product(reduction_shape(g, depth)))
    emit_product(k, g, g.stack, sides, (pixel, weight), store)


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
    _, depth = filter_sides(g, filters)
    if is_narrow(g, depth) or (skips_taps(k, g) and not k.on_gpu):
        image_gradient_narrow(k, g, outputs, filters, images, bias)
    elif k.on_gpu:
        ImageGradient(k, g, outputs, filters, images, bias).emit()
    else:
        image_gradient_of_all_taps(k, g, outputs, filters, images, bias)


def image_gradient_of_all_taps(
    k: KernelBuilder,
    g: ConvGeometry,
    outputs: DeviceOperand,
    filters: DeviceOperand,
    images: DeviceOperand,
    bias: DeviceOperand | None,
) -> None:
    """Emit one product over all taps, of which those that cover no element are zeros.

    On a CPU products with sums of one length have faster code.
    """
    count, depth = filter_sides(g, filters)
    per_group, positions = count // g.groups, [images.shape[0], *g.sizes]

    def upstream(group: Indices, position: Number, iteration: Number) -> Number:
        n, *x = k.unravel(position, positions)
        f, tap = unravel_taps(k, g, iteration, per_group)
        at, inside = output_positions(k, g.windows, x, tap)
        return image_element(g, outputs, n, plus(first_channel(k, group, per_group), f), at, inside)

    def weight(group: Indices, c: Number, iteration: Number) -> Number:
        f, tap = unravel_taps(k, g, iteration, per_group)
        return filter_element(g, filters, plus(first_channel(k, group, per_group), f), c, tap)

    store = output_store(k, g, positions, depth, images, bias)
    sides = (product(positions), depth, product(reduction_shape(g, per_group)))
    emit_product(k, g, g.stack, sides, (upstream, weight), store)


@dataclass(frozen=True)
class ImageGradient:
    """The image gradient as a batch of products, one for each phase of a group's channels.

    Each reduces over the taps that cover the elements of its phase, of which there may be fewer, or
    none.
    """

    k: KernelBuilder
    g: ConvGeometry
    outputs: DeviceOperand
    filters: DeviceOperand
    images: DeviceOperand
    bias: DeviceOperand | None

    def emit(self) -> None:
        """Emit one kernel for all phases."""
        g, (_, depth) = self.g, filter_sides(self.g, self.filters)
        strides = [window.stride for window in g.windows if window.stride > 1]
        most = reduction_shape(g, self.per_group, [most_taps(window) for window in g.windows])
        sides = product(self.positions), depth, product(most)
        lengths = Lengths(self.length, product((*g.stack, *g.taps, self.per_group)))
        emit_product(
            self.k, g, (*strides, *g.stack), sides, (self.upstream, self.weight), self.store,
            lengths if strides else None,
        )  # fmt: skip

    @property
    def per_group(self) -> Size:
        """The number of filters of a group."""
        return filter_sides(self.g, self.filters)[0] // self.g.groups

    @property
    def positions(self) -> list[Size]:
        """The batch, and the elements of a phase on each axis."""
        return [self.images.shape[0], *map(phase_length, self.g.windows)]

    def phases(self, batch: Indices) -> tuple[list[Phase], Indices]:
        """Return the phase on each axis, and the group."""
        numbers = iter(batch)
        phases = [
            Phase.of(self.k, window, next(numbers) if window.stride > 1 else 0)
            for window in self.g.windows
        ]
        return phases, [*numbers]

    def length(self, batch: Indices) -> Number:
        """Return the number of products that are summed."""
        phases, _ = self.phases(batch)
        return reduce(mul, [phase.taps for phase in phases], self.k.size(self.per_group))

    def term(self, batch: Indices, iteration: Number) -> tuple[list[Phase], Number, list[Number]]:
        """Return the phases, the filter, and the numbers of the taps of a reduction index."""
        phases, group = self.phases(batch)
        counts = [phase.tap_count for phase in phases]
        f, taps = unravel_taps(self.k, self.g, iteration, self.per_group, counts)
        return phases, plus(first_channel(self.k, group, self.per_group), f), taps

    def upstream(self, batch: Indices, position: Number, iteration: Number) -> Number:
        """Load the gradient of the output that a term multiplies."""
        phases, f, taps = self.term(batch, iteration)
        n, *elements = self.k.unravel(position, self.positions)
        at, inside = covering_windows(self.k, phases, elements, taps)
        return image_element(self.g, self.outputs, n, f, at, inside)

    def weight(self, batch: Indices, c: Number, iteration: Number) -> Number:
        """Load the element of a filter that a term multiplies."""
        phases, f, taps = self.term(batch, iteration)
        tap = [phase.tap_at(t) for phase, t in zip(phases, taps, strict=True)]
        return filter_element(self.g, self.filters, f, c, tap)

    def store(self, batch: Indices, position: Number, channel: Number, total: Number) -> None:
        """Store a sum plus bias, if its element is in the image."""
        phases, group = self.phases(batch)
        n, *elements = self.k.unravel(position, self.positions)
        at = [phase.element_at(e) for phase, e in zip(phases, elements, strict=True)]
        _, depth = filter_sides(self.g, self.filters)
        c = plus(first_channel(self.k, group, depth), channel)
        value = total if self.bias is None else total + self.bias[c]
        where = elements_exist(self.k, phases, at)
        self.k.store(self.images, in_layout(self.g.layout, (n, c, *at)), value, where)


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
