"""Device kernels of RoI pooling: one program per cell of each box and channel.

The elements of a cell depend on data, so each program loops over its own cell, and gradients are
accumulated with atomic adds where cells overlap, in any order. Edges are rounded in the boxes'
precision, as on the host: an edge must not round to the other side of an integer.
"""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Boxes:
    """Boxes [R, 4] in images, with scaled coordinates, and their number of cells.

    `owners` [R] holds the image index of each box.
    """

    rois: DeviceOperand
    owners: DeviceOperand | None
    images: Size
    scale: float
    cells: tuple[int, int]

    @property
    def precision(self) -> DType:
        """The precision of coordinates: float64 if the boxes are, else float32."""
        return DType.FP64 if self.rois.type.dtype is DType.FP64 else DType.FP32

    def image_index(self, k: KernelBuilder, box: Number) -> Number:
        """Return the image index of a box."""
        if self.owners is None:
            return 0
        return k.clip(self.owners[box], 0, k.size(self.images) - 1)

    def edge(self, box: Number, which: int) -> Number:
        """Return an edge of a box in its image: 0 left, 1 top, 2 right, 3 bottom."""
        return self.rois[box, which] * self.scale


# ---- cells of whole elements -------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """The elements of an axis that a cell covers: start and stop."""

    first: Number
    last: Number

    def count(self, k: KernelBuilder) -> Number:
        """Return their number."""
        return k.maximum(self.last - self.first, 0)


@dataclass(frozen=True)
class Run:
    """A loop over the elements of a cell: loop index, position, and number of elements."""

    iteration: Number
    y: Number
    x: Number
    count: Number


def run_through(k: KernelBuilder, rows: Span, columns: Span, sizes: Shape) -> Run:
    """Start a loop over the elements of the program's own cell."""
    wide = columns.count(k)
    count = rows.count(k) * wide
    iteration, across = k.loop(product(sizes), until=count), k.maximum(wide, 1)
    return Run(
        iteration,
        rows.first + k.div(iteration, across),
        columns.first + k.mod(iteration, across),
        count,
    )


def rounded(k: KernelBuilder, value: Number, dtype: DType) -> Number:
    """Return the nearest integer, halves rounded away from 0."""
    converted = k.astype(value, dtype)
    return k.astype(k.where(converted < 0, converted - 0.5, converted + 0.5), DType.INT32)


def times(k: KernelBuilder, a: Number, b: Number, dtype: DType) -> Number:
    """Return a product rounded to `dtype`; of float32, never part of a fused multiply-add."""
    return k.astype(k.astype(a, DType.FP64) * k.astype(b, DType.FP64), dtype)


def over(k: KernelBuilder, a: Number, count: int, dtype: DType) -> Number:
    """Return a quotient rounded to `dtype`."""
    return k.astype(k.astype(a, DType.FP64) / count, dtype)


def span(
    k: KernelBuilder, cell: Number, start: Number, step: Number, shift: Number, size: Size,
    dtype: DType,
) -> Span:  # fmt: skip
    """Return one cell of the host function `spans`."""
    first = k.astype(k.floor(times(k, cell, step, dtype) + start), DType.INT32) + shift
    last = k.astype(k.ceil(times(k, cell + 1, step, dtype) + start), DType.INT32) + shift
    return Span(k.clip(first, 0, k.size(size)), k.clip(last, 0, k.size(size)))


def pooled_span(
    k: KernelBuilder, first: Number, last: Number, cell: Number, cells: int, size: Size,
    dtype: DType,
) -> Span:  # fmt: skip
    """Return a cell of `roi_pool` on an axis, for scaled edges; cells are float32 in any case."""
    start, stop = rounded(k, first, dtype), rounded(k, last, dtype)
    step = over(k, k.maximum(stop - start + 1, 1), cells, DType.FP32)
    return span(k, cell, step * 0.0, step, start, size, DType.FP32)


def sensitive_span(
    k: KernelBuilder,
    first: Number,
    last: Number,
    cell: Number,
    cells: int,
    size: Size,
    scale: float,
    dtype: DType,
) -> Span:
    """Return a cell of `psroi_pool` on an axis, for unscaled edges."""
    factor = k.astype(first * 0.0 + scale, dtype)
    start = times(k, rounded(k, first, dtype), factor, dtype)
    stop = times(k, rounded(k, last, dtype) + 1, factor, dtype)
    length = k.maximum(stop - start, float(dtype.numpy.type(0.1)))
    return span(k, cell, start, over(k, length, cells, dtype), 0, size, dtype)


def largest(
    k: KernelBuilder, boxes: Boxes, X: DeviceOperand, Out: DeviceOperand | None,
    Argmax: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit a kernel for the maximum of each cell, and its flat index."""
    box, c, i, j = k.grid(boxes.rois.shape[0], X.shape[1], *boxes.cells)
    cells, sizes = boxes.cells, X.shape[2:]
    left, top, right, bottom = (boxes.edge(box, which) for which in range(4))
    rows = pooled_span(k, top, bottom, i, cells[0], sizes[0], boxes.precision)
    columns = pooled_span(k, left, right, j, cells[1], sizes[1], boxes.precision)
    run = run_through(k, rows, columns, sizes)
    value = X[boxes.image_index(k, box), c, run.y, run.x]
    best = k.max(value, run.iteration)
    if Out is not None:
        k.store(Out, (box, c, i, j), k.where(run.count > 0, best, 0))
    if Argmax is not None:
        position, sentinel = run.y * k.size(sizes[1]) + run.x, k.size(product(sizes))
        candidate = k.where(k.equal(value, best), position, sentinel)
        first = k.min(k.astype(candidate, DType.INT32), run.iteration)
        k.store(Argmax, (box, c, i, j), k.where(first < sentinel, first, -1))


def largest_gradient(
    k: KernelBuilder, boxes: Boxes, Argmax: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit kernels that add the gradient of each cell at its maximum."""
    fill(k, d_X, 0)
    box, c, i, j = k.grid(*d_Out.shape)
    count = product(d_X.shape[2:])
    at = Argmax[box, c, i, j]
    images = d_X.reshaped((*d_X.shape[:2], count))
    inside = (at >= 0) & (at < k.size(count))
    k.add(images, (boxes.image_index(k, box), c, at), d_Out[box, c, i, j], inside)


# ---- samples between elements ------------------------------------------------------------------

MAX_COUNT = 2.0**30
"""Most samples of a cell along an axis, so that their number is an index."""


@dataclass(frozen=True)
class Samples:
    """The samples of a `roi_align` cell on one axis: start, step and count.

    From `first` on, `visited` of them may be on the axis, at most `most`.
    """

    start: Number
    step: Number
    count: Number
    first: Number
    visited: Number
    most: Size
    dtype: DType

    def at(self, k: KernelBuilder, iteration: Number, size: Size) -> list[tuple[Number, Number]]:
        """Return the two elements around a sample, and their weights."""
        position = self.start + (k.astype(self.first + iteration, self.dtype) + 0.5) * self.step
        last = k.size(size) - 1
        counted = (position >= -1.0) & (position <= k.astype(k.size(size), self.dtype))
        clamped = k.maximum(k.where(counted, position, 0.0), 0.0)
        low = k.minimum(k.astype(clamped, DType.INT32), last)
        share = k.where(low >= last, 0.0, clamped - k.astype(low, self.dtype))
        weights = (k.where(counted, 1.0 - share, 0.0), k.where(counted, share, 0.0))
        return [(low, weights[0]), (k.minimum(low + 1, last), weights[1])]


def samples(
    k: KernelBuilder, first: Number, last: Number, cell: Number, cells: int, ratio: int,
    size: Size, dtype: DType,
) -> Samples:  # fmt: skip
    """Return one cell of `aligned_weights`: `ratio` samples, or as many as it has elements.

    Those are more than half an element apart, so that few of a large cell are on the axis.
    """
    step = over(k, k.maximum(last - first, 1.0), cells, dtype)
    start = k.astype(first, dtype) + k.astype(cell, dtype) * step
    if ratio > 0:
        return Samples(start, step / ratio, ratio, 0, ratio, ratio, dtype)
    count = k.minimum(k.ceil(step), MAX_COUNT)
    apart = step / count

    def before(position: Number) -> Number:
        index = k.floor((position - start) / apart - 0.5)
        return k.astype(k.maximum(k.minimum(index, count), 0.0), DType.INT32)

    begin, after = before(-1.0), before(k.astype(k.size(size), dtype)) + 2
    visited = k.maximum(k.minimum(after, k.astype(count, DType.INT32)) - begin, 0)
    return Samples(start, apart, count, begin, visited, 2 * size + 5, dtype)


def aligned(
    k: KernelBuilder, boxes: Boxes, channels: Size, sizes: Shape, ratio: int
) -> tuple[tuple[Number, ...], Number, Number, list[tuple[Number, Number, Number]]]:
    """Start a kernel of `roi_align`; return its index, the loop index and count, and elements.

    Each sample reads four elements: row, column and weight.
    """
    box, c, i, j = k.grid(boxes.rois.shape[0], channels, *boxes.cells)
    left, top, right, bottom = (boxes.edge(box, which) for which in range(4))
    down = samples(k, top, bottom, i, boxes.cells[0], ratio, sizes[0], boxes.precision)
    across = samples(k, left, right, j, boxes.cells[1], ratio, sizes[1], boxes.precision)
    count, visited = down.count * across.count, down.visited * across.visited
    iteration = k.loop(down.most * across.most, until=None if ratio > 0 else visited)
    wide = across.visited if ratio > 0 else k.maximum(across.visited, 1)
    rows = down.at(k, k.div(iteration, wide), sizes[0])
    columns = across.at(k, k.mod(iteration, wide), sizes[1])
    elements = [(y, x, along * beside) for y, along in rows for x, beside in columns]
    return (box, c, i, j), iteration, count, elements


def divisor(k: KernelBuilder, count: Number, dtype: DType) -> Number:
    """Return the divisor of the mean of `count` samples."""
    return count if isinstance(count, int) else k.astype(k.maximum(count, 1), dtype)


def aligned_means(
    k: KernelBuilder, boxes: Boxes, X: DeviceOperand, ratio: int, Out: DeviceOperand
) -> None:
    """Emit a kernel for the mean of the samples of each cell."""
    at, iteration, count, elements = aligned(k, boxes, X.shape[1], X.shape[2:], ratio)
    image, total = boxes.image_index(k, at[0]), None
    for y, x, weight in elements:
        value = X[image, at[1], y, x] * weight
        total = value if total is None else total + value
    k.store(Out, at, k.sum(total, iteration) / divisor(k, count, boxes.precision))


def aligned_gradient(
    k: KernelBuilder, boxes: Boxes, d_Out: DeviceOperand, ratio: int, d_X: DeviceOperand
) -> None:
    """Emit kernels that add the gradient of each cell to the elements its samples interpolate."""
    fill(k, d_X, 0)
    at, _, count, elements = aligned(k, boxes, d_X.shape[1], d_X.shape[2:], ratio)
    image = boxes.image_index(k, at[0])
    upstream = d_Out[at] / divisor(k, count, boxes.precision)
    for y, x, weight in elements:
        k.add(d_X, (image, at[1], y, x), upstream * weight)


# ---- means of cells, a channel each ------------------------------------------------------------


def sensitive(
    k: KernelBuilder, boxes: Boxes, channels: Size, sizes: Shape
) -> tuple[tuple[Number, ...], Number, Run]:
    """Start a kernel of `psroi_pool`; return its index, its channel, and the cell's elements."""
    box, c, i, j = k.grid(boxes.rois.shape[0], channels, *boxes.cells)
    cells = boxes.cells
    left, top, right, bottom = (boxes.rois[box, edge] for edge in range(4))
    how = (boxes.scale, boxes.precision)
    rows = sensitive_span(k, top, bottom, i, cells[0], sizes[0], *how)
    columns = sensitive_span(k, left, right, j, cells[1], sizes[1], *how)
    run = run_through(k, rows, columns, sizes)
    return (box, c, i, j), (c * cells[0] + i) * cells[1] + j, run


def sensitive_means(k: KernelBuilder, boxes: Boxes, X: DeviceOperand, Out: DeviceOperand) -> None:
    """Emit a kernel for the mean of each cell in its channel."""
    at, channel, run = sensitive(k, boxes, Out.shape[1], X.shape[2:])
    total = k.sum(X[boxes.image_index(k, at[0]), channel, run.y, run.x], run.iteration)
    k.store(Out, at, total / k.astype(k.maximum(run.count, 1), X.type.dtype))


def sensitive_gradient(
    k: KernelBuilder, boxes: Boxes, d_Out: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit kernels that add the gradient of each cell to all its elements."""
    fill(k, d_X, 0)
    at, channel, run = sensitive(k, boxes, d_Out.shape[1], d_X.shape[2:])
    share = d_Out[at] / k.astype(k.maximum(run.count, 1), d_X.type.dtype)
    k.add(
        d_X,
        (boxes.image_index(k, at[0]), channel, run.y, run.x),
        share,
    )
