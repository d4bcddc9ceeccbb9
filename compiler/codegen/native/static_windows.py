"""Windows whose taps are known when code is generated, and those of their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from compiler.ir.dims import Size
from compiler.ir.windows import Window


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
