"""Pictures at places between their elements, in kernels: the four neighbours of a place.

What lies outside a picture is 0 and is not read, however far away or no number its place may be.
Gradients of pictures are added up where places happen to lie, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.math.bilinear import CORNERS


@dataclass(frozen=True)
class Corner:
    """A neighbour of a place: its row and column, and whether it is inside the picture.

    `near` and `across` are its shares along the rows and columns; `down` and `right` say with what
    sign they grow as the place moves on.
    """

    row: Number
    column: Number
    inside: Number
    near: Number
    across: Number
    down: int
    right: int

    @property
    def share(self) -> Number:
        """How much of what is seen is this neighbour's."""
        return self.near * self.across

    @property
    def slopes(self) -> tuple[Number, Number]:
        """How that grows with the row and with the column of the place."""
        down, right = self.across, self.near
        return down if self.down > 0 else -down, right if self.right > 0 else -right


def corners(k: KernelBuilder, row: Number, column: Number, sizes: Sequence[Size]) -> list[Corner]:
    """The neighbours of a place in a picture of these sizes."""
    found: list[Corner] = []
    for step in CORNERS.split():
        down, right = int(step[0]), int(step[1])
        y, inside_y, near = _neighbour(k, row, down, sizes[0])
        x, inside_x, across = _neighbour(k, column, right, sizes[1])
        signs = (2 * down - 1, 2 * right - 1)
        found.append(Corner(y, x, inside_y & inside_x, near, across, *signs))
    return found


def _neighbour(
    k: KernelBuilder, place: Number, step: int, size: Size
) -> tuple[Number, Number, Number]:
    """The element before or behind a place of an axis, whether there is one, and its share."""
    at = k.floor(place) + float(step)
    last = k.size(size) - 1
    inside = (at >= 0.0) & (at <= (float(last) if isinstance(last, int) else last))
    whole = k.astype(k.where(inside, at, 0.0), DType.INT32)
    return whole, inside, 1.0 - k.absolute(place - at)


def looked(found: Sequence[Corner], at: Callable[[Corner], Number]) -> Number:
    """What is seen at a place; `at` gives the element of a neighbour, 0 outside."""
    total = at(found[0]) * found[0].share
    for each in found[1:]:
        total = total + at(each) * each.share
    return total


def moved(found: Sequence[Corner], at: Callable[[Corner], Number]) -> tuple[Number, Number]:
    """How what is seen changes as a place moves down, and to the right."""
    down, right = (at(found[0]) * slope for slope in found[0].slopes)
    for each in found[1:]:
        value, slopes = at(each), each.slopes
        down, right = down + value * slopes[0], right + value * slopes[1]
    return down, right
