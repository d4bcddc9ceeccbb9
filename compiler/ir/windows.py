"""Sliding windows over images: what convolutions and poolings read, for ops and every target."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from compiler.ir.dims import Size
from compiler.ir.types import Shape

OIHW, HWIO, HWOI = "OIHW", "HWIO", "HWOI"
"""Layouts of filters: that of programs, and those in which kernels of channels-last images read
filters in long runs: convolutions along filters, gradients of images along channels.
"""


def is_channels_last(data_format: str) -> bool:
    """True for layouts whose last axis is the channels; in others they follow the batch."""
    return data_format in ("NHWC", "NDHWC")


@dataclass(frozen=True)
class Window:
    """A window that slides along an image axis of `size` elements, to `count` positions.

    The window has `kernel` taps that are `dilation` apart and moves by `stride`: tap u at position
    x is element x * stride - before + u * dilation. The axis is padded by `before` and `after`.
    With stride 0 the axis is divided into cells instead, which may differ in size: cell i has the
    elements from i * size // count up to (i + 1) * size / count, rounded up.

    Generated modules have it too, as a tuple of these fields with names.
    """

    size: Size
    kernel: Size
    stride: int
    dilation: int
    before: Size
    after: Size
    count: Size

    @property
    def padded(self) -> Size:
        """Size including the padding."""
        return self.size + self.before + self.after

    @property
    def span(self) -> Size:
        """Number of elements from the first tap to the last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def is_padless(self) -> bool:
        """True if the image has no padding."""
        return self.before == 0 and self.after == 0

    @property
    def is_divided(self) -> bool:
        """True if the axis is divided into cells, which may differ in size."""
        return self.stride == 0

    @property
    def overlaps(self) -> bool:
        """True if two positions share an element, or may."""
        return not isinstance(self.kernel, int) or self.kernel > self.stride

    @property
    def is_identity(self) -> bool:
        """True if each position covers exactly the element at its own index."""
        return (self.kernel, self.stride) == (1, 1) and self.is_padless

    @property
    def tap_step(self) -> int:
        """The distance of two taps that cover the same element, at neighbouring positions."""
        return self.stride // gcd(self.stride, self.dilation)


@dataclass(frozen=True)
class KnownWindow(Window):
    """A window whose sizes are numbers, as NumPy code has it."""

    size: int
    kernel: int
    before: int
    after: int
    count: int


@dataclass(frozen=True)
class ConvGeometry:
    """The windows of a convolution of images, one for each axis, its groups and layouts.

    `layout` is that of images and outputs, such as NCHW or NHWC, `filters` that of filters.
    """

    layout: str
    groups: int
    windows: tuple[Window, ...]
    filters: str = OIHW

    @property
    def channels_last(self) -> bool:
        """True if channels are the innermost axis of images."""
        return is_channels_last(self.layout)

    @property
    def sizes(self) -> Shape:
        """The size of an image."""
        return tuple(window.size for window in self.windows)

    @property
    def taps(self) -> Shape:
        """The size of a filter."""
        return tuple(window.kernel for window in self.windows)

    @property
    def counts(self) -> Shape:
        """The size of an output."""
        return tuple(window.count for window in self.windows)

    @property
    def stack(self) -> Shape:
        """The groups as the batch shape of matrix products, if there are several."""
        return (self.groups,) if self.groups > 1 else ()


@dataclass(frozen=True)
class PoolGeometry:
    """The windows of a pooling, one for each axis, and the layout of images and outputs.

    A mean divides by `divisor`, or for 0 by the number of elements under the window.
    """

    layout: str
    windows: tuple[Window, ...]
    divisor: int = 0

    @property
    def channels_last(self) -> bool:
        """True if channels are the innermost axis of images."""
        return is_channels_last(self.layout)
