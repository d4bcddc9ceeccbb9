"""Convolutions on a device: products of matrices whose elements lie where windows see them.

Of an image's filters, places and taps two are the sides of the product and one is summed over:

    forward            places x filters,            summed over taps and channels
    image's gradient   image places x channels,     summed over taps and filters
    filters' gradient  filters x taps and channels, summed over places

With channels first the sides of the first two change places: what lies together in memory stands
across a tile. Groups are a stack of products; narrow ones have kernels of their own. Where each
window sees one place, as with filters of one tap, the images are matrices as they lie. A transposed
convolution is the image's gradient, and its gradients are the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.image.conv_geometry import Windows, plus, seeing, seen
from compiler.ops.image.depthwise_kernels import (
    convolve_narrow,
    filter_gradient_narrow,
    image_gradient_narrow,
)
from compiler.ops.image.windows import channels_first, in_layout
from compiler.ops.math.reduce import sum_axes

Places: TypeAlias = Sequence[Number]
Factor: TypeAlias = Callable[[Places, Number, Number], Number]
"""A factor for the group, if there are several, a side of the product, and a turn of the sum."""

Store: TypeAlias = Callable[[Places, Number, Number, Number], None]
"""Takes the sum of a place and a channel of a group."""


def first_of(k: KernelBuilder, group: Places, each: Size) -> Number:
    """The first channel of a group."""
    return group[0] * k.size(each) if group else 0


def across(
    k: KernelBuilder, g: Windows, sides: tuple[Size, Size, Size], factors: tuple[Factor, Factor],
    store: Store,
) -> None:  # fmt: skip
    """Products of places and channels, the sides in the order in which they lie in memory."""
    places, channels, turns = sides
    pixel, weight = factors

    def ordered(
        group: Places, i: Number, j: Number, left: Number, right: Number
    ) -> tuple[Number, Number]:
        if g.last:
            return pixel(group, i, left), weight(group, j, right)
        return weight(group, i, left), pixel(group, j, right)

    def finish(group: Places, i: Number, j: Number, total: Number) -> None:
        store(group, *((i, j) if g.last else (j, i)), total)

    shape = (places, channels, turns) if g.last else (channels, places, turns)
    k.contraction(g.stack, shape, ordered, finish)


def kept(
    k: KernelBuilder, g: Windows, places: Sequence[Size], each: Size, out: DeviceOperand,
    bias: DeviceOperand | None,
) -> Store:  # fmt: skip
    """Stores a sum, with its channel's bias, where `places` of `each` channels a group lie."""

    def store(group: Places, place: Number, channel: Number, total: Number) -> None:
        n, *at = k.unravel(place, places)
        c = plus(first_of(k, group, each), channel)
        k.store(out, in_layout(g.layout, (n, c, *at)), total if bias is None else total + bias[c])

    return store


def convolve(
    k: KernelBuilder,
    g: Windows,
    images: DeviceOperand,
    filters: DeviceOperand,
    outputs: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:
    """outputs[n, f, y] = bias[f] + Σ filters[f, c, i] images[n, c, s·y + d·i - p]."""
    g, (images, filters, outputs) = g.plain(images, filters, outputs)
    count, depth = g.sides(filters)
    each, places = count // g.groups, [images.shape[0], *g.counts]
    if g.is_narrow(each):
        convolve_narrow(k, g, images, filters, outputs, bias)
        return

    def pixel(group: Places, place: Number, turn: Number) -> Number:
        (n, *y), (c, tap) = k.unravel(place, places), g.unravel(k, turn, depth)
        at, inside = seen(k, g.axes, y, tap)
        return g.at(images, n, plus(first_of(k, group, depth), c), at, inside)

    def weight(group: Places, f: Number, turn: Number) -> Number:
        c, tap = g.unravel(k, turn, depth)
        return g.weight(filters, plus(first_of(k, group, each), f), c, tap)

    sides = (product(places), each, product(g.turns(depth)))
    across(k, g, sides, (pixel, weight), kept(k, g, places, each, outputs, bias))


def image_gradient(
    k: KernelBuilder,
    g: Windows,
    outputs: DeviceOperand,
    filters: DeviceOperand,
    images: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:
    """images[n, c, x] = bias[c] + Σ filters[f, c, i] outputs[n, f, y] where s·y + d·i - p = x."""
    g, (images, filters, outputs) = g.plain(images, filters, outputs)
    count, depth = g.sides(filters)
    each, places = count // g.groups, [images.shape[0], *g.sizes]
    if g.is_narrow(depth):
        image_gradient_narrow(k, g, outputs, filters, images, bias)
        return

    def above(group: Places, place: Number, turn: Number) -> Number:
        (n, *x), (f, tap) = k.unravel(place, places), g.unravel(k, turn, each)
        at, inside = seeing(k, g.axes, x, tap)
        return g.at(outputs, n, plus(first_of(k, group, each), f), at, inside)

    def weight(group: Places, c: Number, turn: Number) -> Number:
        f, tap = g.unravel(k, turn, each)
        return g.weight(filters, plus(first_of(k, group, each), f), c, tap)

    sides = (product(places), depth, product(g.turns(each)))
    across(k, g, sides, (above, weight), kept(k, g, places, depth, images, bias))


def filter_gradient(
    k: KernelBuilder,
    g: Windows,
    images: DeviceOperand,
    outputs: DeviceOperand,
    filters: DeviceOperand,
) -> None:
    """filters[f, c, i] = Σ outputs[n, f, y] images[n, c, s·y + d·i - p] over n and y."""
    g, (images, filters, outputs) = g.plain(images, filters, outputs)
    count, depth = g.sides(filters)
    each, turns = count // g.groups, [images.shape[0], *g.counts]
    if g.is_narrow(each, depth):
        filter_gradient_narrow(k, g, images, outputs, filters)
        return

    def factors(
        group: Places, i: Number, j: Number, left: Number, right: Number
    ) -> tuple[Number, Number]:
        n, *y = k.unravel(left, turns)
        above = g.at(outputs, n, plus(first_of(k, group, each), i), y)
        (n, *y), (c, tap) = k.unravel(right, turns), g.unravel(k, j, depth)
        at, inside = seen(k, g.axes, y, tap)
        return above, g.at(images, n, plus(first_of(k, group, depth), c), at, inside)

    def store(group: Places, i: Number, j: Number, total: Number) -> None:
        c, tap = g.unravel(k, j, depth)
        k.store(filters, (plus(first_of(k, group, each), i), c, *tap), total)

    sides = (each, product(g.turns(depth)), product(turns))
    k.contraction(g.stack, sides, factors, store)


def channel_sums(k: KernelBuilder, layout: str, images: DeviceOperand, sums: DeviceOperand) -> None:
    """sums[c] = all elements of a channel together: the gradient of what is added to it."""
    places = channels_first(layout, tuple(range(len(images.shape))))
    axes = tuple(sorted(int(str(axis)) for axis in (places[0], *places[2:])))
    sum_axes(k, images, axes, sums)
