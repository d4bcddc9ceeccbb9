"""Bilinear sampling in kernels: the four neighbouring pixels of a position.

Pixels outside the image count as 0 and are not loaded, even for huge or NaN positions. Image
gradients are accumulated with atomics, in nondeterministic order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.math.bilinear_sampling_numpy import CORNERS
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Corner:
    """A neighbouring pixel of a sampling position: row, column and in-bounds mask.

    `near` and `across` are its interpolation weights along rows and columns; `down` and `right` are
    the signs of their derivatives with respect to the position.
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
        """Interpolation weight of this pixel."""
        return self.near * self.across

    @property
    def slopes(self) -> tuple[Number, Number]:
        """Derivatives of the weight with respect to the row and the column of the position."""
        down, right = self.across, self.near
        return down if self.down > 0 else -down, right if self.right > 0 else -right


def corners(k: KernelBuilder, row: Number, column: Number, sizes: Sequence[Size]) -> list[Corner]:
    """Return the four neighbours of a position in an image of height and width `sizes`."""
    neighbours: list[Corner] = []
    for step in CORNERS.split():
        down, right = int(step[0]), int(step[1])
        y, inside_y, near = _neighbour(k, row, down, sizes[0])
        x, inside_x, across = _neighbour(k, column, right, sizes[1])
        signs = (2 * down - 1, 2 * right - 1)
        neighbours.append(Corner(y, x, inside_y & inside_x, near, across, *signs))
    return neighbours


def _neighbour(
    k: KernelBuilder, position: Number, step: int, size: Size
) -> tuple[Number, Number, Number]:
    """Return a neighbour's index along one axis, its in-bounds mask, and its weight."""
    at = k.floor(position) + float(step)
    last = k.size(size) - 1
    inside = (at >= 0.0) & (at <= (float(last) if isinstance(last, int) else last))
    whole = k.astype(k.where(inside, at, 0.0), DType.INT32)
    return whole, inside, 1.0 - k.absolute(position - at)


def looked(found: Sequence[Corner], at: Callable[[Corner], Number]) -> Number:
    """Return the bilinear sample; `at` loads a neighbour's pixel (0 out of bounds)."""
    total = at(found[0]) * found[0].share
    for corner in found[1:]:
        total = total + at(corner) * corner.share
    return total


def moved(found: Sequence[Corner], at: Callable[[Corner], Number]) -> tuple[Number, Number]:
    """Return the derivatives of the sample with respect to the row and column position."""
    down, right = (at(found[0]) * slope for slope in found[0].slopes)
    for corner in found[1:]:
        value, slopes = at(corner), corner.slopes
        down, right = down + value * slopes[0], right + value * slopes[1]
    return down, right
