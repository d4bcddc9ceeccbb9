"""Convolutions on a device: products of matrices whose elements lie where windows see them.

Of an image's filters, places and taps two are the sides of the product and one is summed over:

    forward            filters x places,            summed over channels and taps
    image's gradient   channels x image places,     summed over filters and taps
    filters' gradient  filters x channels and taps, summed over places

Groups are a stack of products. Where a group is too narrow for tiles, as in depthwise convolution,
each element has a lane of its own that runs through the sum. A transposed convolution is the
image's gradient, and its gradients are the other two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from compiler.ir.dims import Size, product
from compiler.ir.kernel import DeviceOperand, Lanes, Number
from compiler.ops.image.windows import Axis, channels_first, in_layout
from compiler.ops.math.reduce import sum_axes

NARROW = 8
"""Filters or channels of a group below which tiles would be mostly empty."""

Seen = tuple[list[Number], Number | None]
"""Where a window looks on each axis, and whether that is inside; None where it always is."""


@dataclass(frozen=True)
class Windows:
    """A convolution of `images` to `outputs` in a layout: groups, and windows on every axis."""

    layout: str
    groups: int
    axes: tuple[Axis, ...]

    @property
    def taps(self) -> list[Size]:
        """The sizes of a filter."""
        return [axis.kernel for axis in self.axes]

    @property
    def counts(self) -> list[Size]:
        """The sizes of an output."""
        return [axis.count for axis in self.axes]

    @property
    def sizes(self) -> list[Size]:
        """The sizes of an image."""
        return [axis.size for axis in self.axes]

    @property
    def stack(self) -> list[Size]:
        """Groups as a stack of products, if there are several."""
        return [self.groups] if self.groups > 1 else []

    def is_narrow(self, *sides: Size) -> bool:
        """True where sides of a group's product are too short for tiles."""
        return self.groups > 1 and any(isinstance(n, int) and n < NARROW for n in sides)

    def at(
        self, images: DeviceOperand, n: Number, c: Number, places: Sequence[Number],
        where: Number | None = None,
    ) -> Number:  # fmt: skip
        """An element of a batch; 0 where `where` is false."""
        return images.at(*in_layout(self.layout, (n, c, *places)), where=where, other=0)


def seen(k: Lanes, axes: Sequence[Axis], places: Sequence[Number], taps: Sequence[Number]) -> Seen:
    """The image's places under taps of windows."""
    found: list[Number] = []
    inside: Number | None = None
    for axis, place, tap in zip(axes, places, taps, strict=True):
        at = times(place, axis.stride) + times(tap, axis.dilation)
        if not axis.is_padless:
            at = at - k.size(axis.before)
            inside = both(inside, every(at >= 0, at < k.size(axis.size)))
        found.append(at)
    return found, inside


def seeing(
    k: Lanes, axes: Sequence[Axis], places: Sequence[Number], taps: Sequence[Number]
) -> Seen:
    """The windows that have a place of the image under a tap, where there is such a window."""
    found: list[Number] = []
    inside: Number | None = None
    for axis, place, tap in zip(axes, places, taps, strict=True):
        start = place + k.size(axis.before) - times(tap, axis.dilation)
        at = k.div(start, axis.stride)
        fits = every(start >= 0, at < k.size(axis.count))
        if axis.stride > 1:
            fits = both(fits, k.equal(k.mod(start, axis.stride), 0))
        inside = both(inside, fits)
        found.append(at)
    return found, inside


def both(a: Number | None, b: Number) -> Number:
    """Two conditions, of which the first may be none, and which may be known."""
    if a is False or b is False:
        return False
    if a is None or a is True:
        return b
    return a if b is True else a & b


def every(*conditions: Number) -> Number:
    """Several conditions in one."""
    return reduce(both, conditions)


def plus(first: Number, number: Number) -> Number:
    """A sum, which is left out where it changes nothing."""
    return number if isinstance(first, int) and first == 0 else first + number


def times(number: Number, factor: int) -> Number:
    """A product, which is left out where it changes nothing."""
    return number if factor == 1 else number * factor


# ---- images times filters ----------------------------------------------------------------------


def convolve(
    k: Lanes, g: Windows, images: DeviceOperand, filters: DeviceOperand, outputs: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:  # fmt: skip
    """outputs[n, f, y] = bias[f] + Σ filters[f, c, i] images[n, c, s·y + d·i - p]."""
    batch, (count, depth, *_) = images.shape[0], filters.shape
    each, turns = count // g.groups, [depth, *g.taps]
    matrix = filters.seen_as((count, product(turns)))
    if g.is_narrow(each):
        n, f, *y = channels_first(g.layout, k.lanes(*outputs.shape))
        turn = k.loop(product(turns))
        c, *tap = k.unravel(turn, turns)
        places, inside = seen(k, g.axes, y, tap)
        pixel = g.at(images, n, k.div(f, each) * k.size(depth) + c, places, inside)
        total = k.sum(pixel * matrix[f, turn], turn)
    else:
        group, i, j, left, right = k.tiles(
            g.stack, each, product([batch, *g.counts]), product(turns)
        )
        f, first = (group[0] * each + i, group[0] * k.size(depth)) if group else (i, 0)
        (n, *y), (c, *tap) = k.unravel(j, [batch, *g.counts]), k.unravel(right, turns)
        places, inside = seen(k, g.axes, y, tap)
        total = k.contract(matrix[f, left], g.at(images, n, plus(first, c), places, inside))
    k.store(outputs, in_layout(g.layout, (n, f, *y)), total if bias is None else total + bias[f])


def image_gradient(
    k: Lanes, g: Windows, outputs: DeviceOperand, filters: DeviceOperand, images: DeviceOperand,
    bias: DeviceOperand | None = None,
) -> None:  # fmt: skip
    """images[n, c, x] = bias[c] + Σ filters[f, c, i] outputs[n, f, y] where s·y + d·i - p = x."""
    batch, (count, depth, *_) = images.shape[0], filters.shape
    each = count // g.groups
    turns = [each, *g.taps]
    if g.is_narrow(depth):
        n, c, *x = channels_first(g.layout, k.lanes(*images.shape))
        turn = k.loop(product(turns))
        group, inner = k.div(c, depth), k.mod(c, depth)
        f, *tap = k.unravel(turn, turns)
        places, inside = seeing(k, g.axes, x, tap)
        above = g.at(outputs, n, group * each + f, places, inside)
        total = k.sum(above * filters[(group * each + f, inner, *tap)], turn)
    else:
        columns = product([batch, *g.sizes])
        stack, i, j, left, right = k.tiles(g.stack, depth, columns, product(turns))
        first, c = (stack[0] * each, stack[0] * k.size(depth) + i) if stack else (0, i)
        (f, *tap), (n, *x) = k.unravel(left, turns), k.unravel(j, [batch, *g.sizes])
        a = filters[(plus(first, f), i, *tap)]
        f, *tap = k.unravel(right, turns)
        places, inside = seeing(k, g.axes, x, tap)
        total = k.contract(a, g.at(outputs, n, plus(first, f), places, inside))
    k.store(images, in_layout(g.layout, (n, c, *x)), total if bias is None else total + bias[c])


def filter_gradient(
    k: Lanes, g: Windows, images: DeviceOperand, outputs: DeviceOperand, filters: DeviceOperand
) -> None:
    """filters[f, c, i] = Σ outputs[n, f, y] images[n, c, s·y + d·i - p] over n and y."""
    batch, (count, depth, *_) = images.shape[0], filters.shape
    each, turns = count // g.groups, [batch, *g.counts]
    if g.is_narrow(each, depth):
        f, c, *tap = k.lanes(*filters.shape)
        turn = k.loop(product(turns))
        n, *y = k.unravel(turn, turns)
        places, inside = seen(k, g.axes, y, tap)
        pixel = g.at(images, n, k.div(f, each) * k.size(depth) + c, places, inside)
        k.store(filters, (f, c, *tap), k.sum(pixel * g.at(outputs, n, f, y), turn))
        return
    columns = [depth, *g.taps]
    stack, i, j, left, right = k.tiles(g.stack, each, product(columns), product(turns))
    f, first = (stack[0] * each + i, stack[0] * k.size(depth)) if stack else (i, 0)
    n, *y = k.unravel(left, turns)
    a = g.at(outputs, n, f, y)
    (n, *y), (c, *tap) = k.unravel(right, turns), k.unravel(j, columns)
    places, inside = seen(k, g.axes, y, tap)
    total = k.contract(a, g.at(images, n, plus(first, c), places, inside))
    k.store(filters.seen_as((count, product(columns))), (f, j), total)


def channel_sums(k: Lanes, layout: str, images: DeviceOperand, sums: DeviceOperand) -> None:
    """sums[c] = all elements of a channel together: the gradient of what is added to it."""
    places = channels_first(layout, tuple(range(len(images.shape))))
    axes = tuple(sorted(int(str(axis)) for axis in (places[0], *places[2:])))
    sum_axes(k, images, axes, sums)
