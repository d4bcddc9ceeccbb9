"""Device kernels of `group_norm`: one program per group of an image, looping over the group."""

from __future__ import annotations

import math

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import Shape
from compiler.ir.windows import is_channels_last
from compiler.ops.image.layouts import channels_first
from compiler.ops.norm.channel_kernels import (
    Channels,
    compute_dtype,
    masked,
    row_gradient,
    sums,
    upcast,
)
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Member:
    """An element of a group: its position, and whether it is inside the group."""

    n: Number
    group: Number
    c: Number
    index: tuple[Number, ...]
    iteration: Number
    inside: Number | None
    count: Number

    def at(self, k: KernelBuilder, vector: DeviceOperand) -> Number:
        """Load a vector's element for this element's channel."""
        return upcast(k, vector.at(self.c, where=self.inside, other=0))


@dataclass(frozen=True)
class Groups:
    """Images in a layout, their channels in groups; the last group may be smaller."""

    layout: str
    shape: Shape
    groups: int

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """Images, channels, positions."""
        batch, channels, *image = channels_first(self.layout, self.shape)
        return batch, channels, product(image)

    @property
    def view(self) -> Shape:
        """Shape of the images with one axis for all positions."""
        batch, channels, positions = self.sizes
        last = is_channels_last(self.layout)
        return (batch, positions, channels) if last else (batch, channels, positions)

    def begin(self, k: KernelBuilder, like: DeviceOperand) -> Member:
        """Start a kernel over the groups of each image; return the element of a loop index."""
        batch, channels, positions = self.sizes
        size = (channels - 1) // self.groups + 1
        n, group = k.grid(batch, self.groups)
        iteration = k.loop(size * positions)
        if is_channels_last(self.layout):
            p, c = k.unravel(iteration, (positions, size))
        else:
            c, p = k.unravel(iteration, (size, positions))
        c = group * k.size(size) + c
        even = isinstance(channels, int) and channels % self.groups == 0
        inside = None if even else c < k.size(channels)
        index = (n, p, c) if is_channels_last(self.layout) else (n, c, p)
        own = k.minimum(k.size(channels) - group * k.size(size), k.size(size)) * k.size(positions)
        return Member(
            n, group, c, index, iteration, inside, k.astype(own, compute_dtype(like.type.dtype))
        )

    def read(self, k: KernelBuilder, images: DeviceOperand, e: Member) -> Number:
        """Load an element, upcast to at least 32 bits; 0 outside the group."""
        return upcast(k, images.reshaped(self.view).at(*e.index, where=e.inside, other=0))


def normalise(
    k: KernelBuilder, g: Groups, X: DeviceOperand, factors: tuple[DeviceOperand | None, ...],
    epsilon: float, outs: tuple[DeviceOperand | None, ...],
) -> None:  # fmt: skip
    """Emit Y, the mean and the variance of every group; `factors` are scale and bias.

    The statistics of a group without channels are NaN.
    """
    Channels(g.sizes).expect(k, *factors)
    e, (Y, *statistics) = g.begin(k, X), outs
    x = g.read(k, X, e)
    mean, variance = k.moments(x, e.iteration, e.inside)
    for out, value in zip(statistics, (mean, variance), strict=True):
        if out is not None:
            guarded = value if e.inside is None else k.where(e.count > 0.0, value, math.nan)
            k.store(out, (e.n, e.group), guarded)
    if Y is None:
        return
    scale, bias = factors
    y = (x - mean) / k.sqrt(variance + epsilon)
    y = y if scale is None else y * e.at(k, scale)
    y = y if bias is None else y + e.at(k, bias)
    k.store(Y.reshaped(g.view), e.index, y, where=e.inside)


def normalised_value(
    k: KernelBuilder, y: Number, scale: Number | None, bias: Number | None
) -> Number:
    """Return the normalised value of Y, before scale and bias; 0 where the scale is 0."""
    shifted = y if bias is None else y - bias
    if scale is None:
        return shifted
    none = k.equal(scale, 0)
    return k.where(none, 0, shifted / k.where(none, 1, scale))


def gradient(
    k: KernelBuilder, g: Groups, given: tuple[DeviceOperand, DeviceOperand, DeviceOperand],
    factors: tuple[DeviceOperand | None, ...], epsilon: float,
    result: tuple[DeviceOperand | None, ...],
) -> None:  # fmt: skip
    """Emit the gradients of images, scale and bias from Y, d_Y and the variance."""
    Y, d_Y, Variance = given
    d_X, *sum_outputs = result
    s = Channels.of(g.layout, g.shape)

    def values(c: Number, position: Number) -> list[Number]:
        upstream = s.read(k, d_Y, c, position)
        own = [None if factor is None else upcast(k, factor[c]) for factor in factors]
        normal = normalised_value(k, s.read(k, Y, c, position), own[0], own[1])
        pairs = zip(sum_outputs, (upstream * normal, upstream), strict=True)
        return [value for out, value in pairs if out is not None]

    if any(out is not None for out in sum_outputs):
        sums(k, s, values, [out for out in sum_outputs if out is not None])
    if d_X is None:
        return
    e = g.begin(k, Y)
    own = [None if factor is None else e.at(k, factor) for factor in factors]
    upstream = g.read(k, d_Y, e)
    normal = masked(k, e.inside, normalised_value(k, g.read(k, Y, e), own[0], own[1]))
    scaled = upstream if own[0] is None else upstream * own[0]
    inverse = 1.0 / k.sqrt(upcast(k, Variance[e.n, e.group]) + epsilon)
    share = row_gradient(k, e.iteration, e.count, scaled, normal, inverse)
    k.store(d_X.reshaped(g.view), e.index, share, where=e.inside)
