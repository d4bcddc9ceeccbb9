"""Device kernels of `roi_perspective_transform`: the map of each box, then its sampling positions.

A test on an edge depends on the last digit: maps are in single precision, as on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape
from compiler.ops.math.bilinear_sampling_numpy import CORNERS
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Corners:
    """Quadrilaterals [R, 8] in images, clockwise from the upper left, with scaled coordinates.

    Positions nearer to an edge than `near` lie on it; `flat` keeps a determinant from being 0.
    """

    rois: DeviceOperand
    scale: float
    near: float
    flat: float

    def at(self, k: KernelBuilder, box: Number) -> tuple[list[Number], list[Number]]:
        """Return x and y of the four corners of a box."""
        single = [k.astype(self.rois[box, n], DType.FP32) * self.scale for n in range(8)]
        return single[::2], single[1::2]


def maps(
    k: KernelBuilder, corners: Corners, height: int, width: int, outs: Sequence[DeviceOperand]
) -> None:
    """Emit a kernel for `perspective` of each box: nine coefficients from output to image.

    They are stored in each of `outs`, which may round them.
    """
    (box,) = k.grid(outs[0].shape[0])
    x, y = corners.at(k, box)
    sides = [
        k.sqrt(k.square(x[i] - x[(i + 1) % 4]) + k.square(y[i] - y[(i + 1) % 4])) for i in range(4)
    ]
    tall, wide, rows = (sides[1] + sides[3]) / 2.0, (sides[0] + sides[2]) / 2.0, max(2, height)
    ideal = k.astype(k.floor(wide * float(rows - 1) / tall + 0.5), DType.INT32) + 1
    last = k.astype(k.maximum(k.minimum(ideal, width), 2) - 1, DType.FP32)
    (dx1, dx2, dx3), (dy1, dy2, dy3) = (
        (a[1] - a[2], a[3] - a[2], a[0] - a[1] + a[2] - a[3]) for a in (x, y)
    )
    whole = dx1 * dy2 - dx2 * dy1 + corners.flat
    right = (dx3 * dy2 - dx2 * dy3) / whole / last
    down = (dx1 * dy3 - dx3 * dy1) / whole / float(rows - 1)
    result: list[Number] = []
    for a in (x, y):
        result += [(a[1] - a[0]) / last + right * a[1]]
        result += [(a[3] - a[0]) / float(rows - 1) + down * a[3], a[0]]
    for position, value in enumerate((*result, right, down, 1.0)):
        for out in outs:
            k.store(out, (box, position), value)


def sampling_table(
    k: KernelBuilder, corners: Corners, maps: DeviceOperand, sizes: Shape, width: int,
    outs: tuple[DeviceOperand, DeviceOperand, DeviceOperand],
) -> None:  # fmt: skip
    """Emit a kernel for the mask of each position, its four elements, and their weights."""
    mask, positions, weights = outs
    box, position = k.grid(*positions.shape[:2])
    m = [k.astype(maps[box, n], DType.FP64) for n in range(9)]
    row, column = (k.astype(part(position, width), DType.FP64) for part in (k.div, k.mod))
    depth = m[6] * column + m[7] * row + m[8]
    across = (m[0] * column + m[1] * row + m[2]) / depth
    along = (m[3] * column + m[4] * row + m[5]) / depth
    inside = _within(k, corners, along, sizes[0]) & _within(k, corners, across, sizes[1])
    inside = inside & _inside(k, corners, across, along, corners.at(k, box))
    k.store(mask, (box, position), k.where(inside, 1, 0))
    tops, lefts = _around(k, along, inside, sizes[0]), _around(k, across, inside, sizes[1])
    for number, step in enumerate(CORNERS.split()):
        (y, on_level_edge), (x, above) = tops[int(step[0])], lefts[int(step[1])]
        k.store(positions, (box, position, number), k.where(inside, y * k.size(sizes[1]) + x, 0))
        k.store(weights, (box, position, number), k.where(inside, on_level_edge * above, 0.0))


def _around(
    k: KernelBuilder, position: Number, inside: Number, size: Size
) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """Return the two elements of an axis around a position, and their weights."""
    clamped, last = k.maximum(k.where(inside, position, 0.0), 0.0), k.size(size) - 1
    low = k.minimum(k.astype(k.floor(clamped), DType.INT32), last)
    share = k.where(low >= last, 0.0, clamped - k.astype(low, DType.FP64))
    return (low, 1.0 - share), (k.minimum(low + 1, last), share)


def _within(k: KernelBuilder, corners: Corners, position: Number, size: Size) -> Number:
    """Test if a position is less than half an element outside an axis."""
    count = k.astype(position * 0.0 + k.size(size), DType.FP64)
    return k.absolute(position - (count - 1.0) / 2.0) < count / 2.0 - corners.near


def _inside(
    k: KernelBuilder, c: Corners, x: Number, y: Number, corners: Sequence[Sequence[Number]]
) -> Number:
    """Test if a position is in a quadrilateral, including its edges."""
    on, crossings = x < x, k.where(x < x, 1, 0)
    for start in range(4):
        (x1, x2), (y1, y2) = ((axis[start], axis[(start + 1) % 4]) for axis in corners)
        low, high, level = k.minimum(y1, y2), k.maximum(y1, y2), k.absolute(y1 - y2) < c.near
        between = (x > k.minimum(x1, x2) - c.near) & (x < k.maximum(x1, x2) + c.near)
        on_level_edge = (k.absolute(y - y1) < c.near) & (k.absolute(y - y2) < c.near) & between
        crossing = (y - y1) * (x2 - x1) / k.where(level, 1.0, y2 - y1) + x1
        reached = (y > low - c.near) & (y < high + c.near)
        touched = (k.absolute(crossing - x) < c.near) & reached
        on = on | k.where(level, on_level_edge, touched)
        spans = (y > low + c.near) & (y < high + c.near) & (crossing > x + c.near)
        crossings = crossings + k.where(spans & ~level, 1, 0)
    return on | k.equal(k.mod(crossings, 2), 1)


def drawings(
    k: KernelBuilder, X: DeviceOperand, image: DeviceOperand | None, positions: DeviceOperand,
    weights: DeviceOperand, out: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for the interpolated value of each output position."""
    flat = X.reshaped((X.shape[0], X.shape[1], product(X.shape[2:])))
    table = (out.shape[0], out.shape[1], product(out.shape[2:]))
    box, c, position = k.grid(*table)
    r = k.loop(4)
    number = 0 if image is None else image[box]
    value = flat[number, c, positions[box, position, r]] * weights[box, position, r]
    k.store(out.reshaped(table), (box, c, position), k.sum(value, r))


def gradient(
    k: KernelBuilder, image: DeviceOperand | None, positions: DeviceOperand, weights: DeviceOperand,
    above: DeviceOperand, d_X: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels that add the gradient of each output position to the elements it read."""
    fill(k, d_X, 0)
    count = product(d_X.shape[2:])
    flat = d_X.reshaped((d_X.shape[0], d_X.shape[1], count))
    table = (above.shape[0], above.shape[1], product(above.shape[2:]))
    box, c, position, which = k.grid(*table, 4)
    number, at = 0 if image is None else image[box], positions[box, position, which]
    share = above.reshaped(table)[box, c, position] * weights[box, position, which]
    k.add(flat, (number, c, at), share, (at >= 0) & (at < k.size(count)))
