"""Sliding windows over images: what convolutions and poolings read, for ops and every target."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from compiler.ir.dims import Size
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass

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
    def clipped(self) -> Window:
        """A window that covers the same elements at each position, with few more taps than the axis
        has elements; itself if a size is open. Its padding may differ.
        """
        size, kernel, before, count = self.size, self.kernel, self.before, self.count
        if (
            not isinstance(size, int)
            or not isinstance(kernel, int)
            or not isinstance(before, int)
            or not isinstance(count, int)
            or self.dilation != 1
            or kernel <= max(size, before)
        ):
            return self
        shift = max(before - (count - 1) * self.stride, 0)
        taps = min(kernel - shift, size + before - shift)
        end = (count - 1) * self.stride + taps
        return replace(
            self, kernel=taps, before=before - shift, after=max(end - size - (before - shift), 0)
        )

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
class StaticWindow(Window):
    """A window with numbers as kernel and padding, which may slide over a dilated image.

    The elements of the image are `base_dilation` apart, with zeros between them: tap u at position
    x meets element (x * stride - before + u * dilation) / base_dilation, where that is a whole
    number inside the axis. This is how the gradient of a stride reads the gradient of its output.
    """

    kernel: int
    before: int
    after: int
    base_dilation: int = 1

    @classmethod
    def fitting(
        cls, size: Size, kernel: int, stride: int = 1, dilation: int = 1, before: int = 0,
        after: int = 0,
    ) -> StaticWindow:  # fmt: skip
        """Return a window with as many positions as fit on a padded axis."""
        count = (size + (before + after - dilation * (kernel - 1) - 1)) // stride + 1
        return cls(size, kernel, stride, dilation, before, after, count)

    @property
    def period(self) -> int:
        """The distance of two taps at one position that meet elements."""
        return self.base_dilation // gcd(self.base_dilation, self.dilation)

    @property
    def advance(self) -> int:
        """The elements between two taps that are `period` apart."""
        return self.period * self.dilation // self.base_dilation

    @property
    def transposed(self) -> StaticWindow:
        """The window of the gradient: positions are elements, taps are numbered backwards."""
        reach = (self.kernel - 1) * self.dilation
        return StaticWindow(
            self.count, self.kernel, self.base_dilation, self.dilation, reach - self.before,
            reach - self.after, self.size, self.stride,
        )  # fmt: skip

    def element(self, x: int, u: int) -> int | None:
        """The element that a tap meets, the ends of the axis not considered."""
        place = x * self.stride - self.before + u * self.dilation
        return None if place % self.base_dilation else place // self.base_dilation


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
