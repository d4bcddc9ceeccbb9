"""Device kernels of `prroi_pool`: integrals over cells, and the gradients of the box edges."""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape
from compiler.ops.image.roi_pool_kernels import Boxes, Run, Span, run_through
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass


def hat(k: KernelBuilder, distance: Number) -> Number:
    """Return the weight of an element at a distance in linear interpolation."""
    return k.maximum(1.0 - k.absolute(distance), 0.0)


def hat_integral(k: KernelBuilder, distance: Number) -> Number:
    """Return the integral of `hat` up to a distance."""
    at = k.clip(distance, -1.0, 1.0)
    return k.where(at < 0, (1.0 + at) * (1.0 + at), 2.0 - (1.0 - at) * (1.0 - at)) * 0.5


@dataclass(frozen=True)
class Cell:
    """A cell on one axis, in double precision: its edges, its index, and the number of cells."""

    low: Number
    high: Number
    number: Number
    cells: int

    def span(self, k: KernelBuilder, size: Size) -> Span:
        """Return the elements that contribute to the cell."""
        last = k.size(size)
        low = k.clip(self.low, 0.0, k.astype(last, DType.FP64))
        high = k.clip(self.high, -1.0, k.astype(last, DType.FP64))
        stop = k.minimum(k.astype(k.ceil(high), DType.INT32) + 1, last)
        return Span(k.astype(k.floor(low), DType.INT32), stop)

    def weight(self, k: KernelBuilder, element: Number) -> Number:
        """Return the weight of an element in the integral."""
        position = k.astype(element, DType.FP64)
        return hat_integral(k, self.high - position) - hat_integral(k, self.low - position)

    def slopes(self, k: KernelBuilder, element: Number) -> tuple[Number, Number]:
        """Return the derivatives of that weight by the first and the last edge of the whole box."""
        position, share = k.astype(element, DType.FP64), 1.0 / self.cells
        high, low = hat(k, self.high - position), hat(k, self.low - position)
        before = k.astype(self.number, DType.FP64) * share
        by_last = high * (before + share) - low * before
        return high - low - by_last, by_last


def box_cell(k: KernelBuilder, first: Number, last: Number, number: Number, cells: int) -> Cell:
    """Return a cell of a box on one axis."""
    start, side = k.astype(first, DType.FP64), k.astype(k.maximum(last - first, 0.0), DType.FP64)
    at = k.astype(number, DType.FP64)
    return Cell(start + side * at / cells, start + side * (at + 1.0) / cells, number, cells)


def begin(
    k: KernelBuilder, boxes: Boxes, channels: Size, sizes: Shape
) -> tuple[tuple[Number, ...], tuple[Cell, Cell], Number, Run]:
    """Start a kernel; return its index, its cell on both axes, the area, and the elements."""
    box, c, i, j = k.grid(boxes.rois.shape[0], channels, *boxes.cells)
    rows = box_cell(k, boxes.edge(box, 1), boxes.edge(box, 3), i, boxes.cells[0])
    columns = box_cell(k, boxes.edge(box, 0), boxes.edge(box, 2), j, boxes.cells[1])
    area = (rows.high - rows.low) * (columns.high - columns.low)
    run = run_through(k, rows.span(k, sizes[0]), columns.span(k, sizes[1]), sizes)
    return (box, c, i, j), (rows, columns), area, run


def integrals(k: KernelBuilder, boxes: Boxes, X: DeviceOperand, Out: DeviceOperand) -> None:
    """Emit a kernel for the integral over each cell divided by its area; 0 where that is 0."""
    at, (rows, columns), area, run = begin(k, boxes, X.shape[1], X.shape[2:])
    value = X[boxes.image_index(k, at[0]), at[1], run.y, run.x]
    total = k.sum(value * rows.weight(k, run.y) * columns.weight(k, run.x), run.iteration)
    k.store(Out, at, k.where(area > 0, total / k.where(area > 0, area, 1.0), 0.0))


def input_gradient(
    k: KernelBuilder, boxes: Boxes, d_Out: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit kernels that add the gradient of each cell to its elements."""
    fill(k, d_X, 0)
    at, (rows, columns), area, run = begin(k, boxes, d_X.shape[1], d_X.shape[2:])
    share = d_Out[at] * rows.weight(k, run.y) * columns.weight(k, run.x) / area
    position = (boxes.image_index(k, at[0]), at[1], run.y, run.x)
    k.add(d_X, position, k.astype(share, d_X.type.dtype), area > 0)


def box_gradient(
    k: KernelBuilder, boxes: Boxes, X: DeviceOperand, Out: DeviceOperand, d_Out: DeviceOperand,
    d_ROIs: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the gradients of edges: contributions of cells, and sums per box."""
    count = d_Out.shape[0]
    parts = k.scratch((4, *d_Out.shape), DType.FP64)
    at, (rows, columns), area, run = begin(k, boxes, X.shape[1], X.shape[2:])
    value = X[boxes.image_index(k, at[0]), at[1], run.y, run.x]
    upstream = d_Out[at] / k.where(area > 0, area, 1.0)
    lost = k.astype(d_Out[at] * Out[at], DType.FP64)
    axes = ((columns, run.x, rows.weight(k, run.y)), (rows, run.y, columns.weight(k, run.x)))
    for axis, (cell, position, other) in enumerate(axes):
        side = (cell.high - cell.low) * float(cell.cells)
        grown = lost / k.where(side > 0, side, 1.0)
        for end, (slope, sign) in enumerate(
            zip(cell.slopes(k, position), (1.0, -1.0), strict=True)
        ):
            total = k.sum(value * slope * other, run.iteration) * upstream + grown * sign
            k.store(parts, (axis + 2 * end, *at), k.where(area > 0, total, 0.0))
    box, edge = k.grid(count, 4)
    every = product(d_Out.shape[1:])
    r = k.loop(every)
    total = k.sum(parts.reshaped((4, count, every))[edge, box, r], r)
    k.store(d_ROIs, (box, edge), total * boxes.scale)
