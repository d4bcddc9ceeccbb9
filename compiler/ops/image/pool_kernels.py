"""Device kernels of pooling: one program per window, and in gradients one per element.

The gradient of an element is gathered from the windows that cover it, so the order of additions is
deterministic. The index of each window's maximum is computed once, before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape, lowest
from compiler.ops.image.conv_geometry import both, every, plus, times, within
from compiler.ops.image.unrolled_reductions import UnrolledReduction
from compiler.ops.image.windows import Axis, channels_first, in_layout
from compiler.ops.norm.channel_kernels import compute_dtype, upcast


@dataclass(frozen=True)
class AxisWindows:
    """Windows on one axis; stride 0 splits the axis into `count` cells."""

    axis: Axis

    @property
    def split(self) -> bool:
        """True where windows are cells that may differ in size."""
        return self.axis.stride == 0

    @property
    def taps(self) -> Size:
        """Maximum number of elements per window."""
        if not self.split:
            return self.axis.kernel
        return self.axis.size if self.axis.count == 1 else self.axis.size // self.axis.count + 2

    @property
    def around(self) -> Size:
        """Maximum number of windows that cover an element."""
        if self.split:
            return self.axis.count
        kernel = self.axis.kernel
        return (kernel + self.axis.stride - 1) // self.axis.stride

    def span(self, k: KernelBuilder, y: Number) -> tuple[Number, Number]:
        """Return start and stop of a window, including its part outside the image."""
        axis = self.axis
        if not self.split:
            start = times(y, axis.stride) - axis.before
            return start, start + k.size(axis.kernel)
        count, size = k.size(axis.count), k.size(axis.size)
        return k.div(y * size, count), k.div((y + 1) * size + (count - 1), count)

    def covered(self, k: KernelBuilder, y: Number) -> Number:
        """Return the number of image elements that a window covers."""
        start, stop = self.span(k, y)
        if self.split:
            return stop - start
        axis = self.axis
        last = (axis.count - 1) * axis.stride + axis.kernel
        size = axis.size
        if axis.is_padless and isinstance(last, int) and isinstance(size, int) and last <= size:
            return axis.kernel
        return k.minimum(stop, k.size(self.axis.size)) - k.maximum(start, 0)

    def under(self, k: KernelBuilder, y: Number, tap: Number) -> tuple[Number, Number]:
        """Return the element under a tap of a window, and whether there is one."""
        axis, (start, stop) = self.axis, self.span(k, y)
        if self.split:
            position = start + tap
            return position, every(position < k.size(axis.size), position < stop)
        shift = tap - k.size(axis.before)
        position = plus(shift, times(y, axis.stride))
        return position, within(k, position, shift, (axis.count - 1) * axis.stride, axis.size)

    def over(self, k: KernelBuilder, x: Number, iteration: Number) -> tuple[Number, Number]:
        """Return the `iteration`-th window that may cover an element, and whether it does."""
        axis = self.axis
        y = iteration if self.split else k.div(x + axis.before, axis.stride) - iteration
        start, stop = self.span(k, y)
        return y, every(y >= 0, y < k.size(axis.count), start <= x, x < stop)


@dataclass(frozen=True)
class PoolGeometry:
    """Windows over all image axes in a layout; `divisor` is that of means, or 0."""

    layout: str
    axes: tuple[Axis, ...]
    divisor: int = 0

    @property
    def cells(self) -> list[AxisWindows]:
        """The windows of each axis."""
        return [AxisWindows(axis) for axis in self.axes]

    def taps(self, k: KernelBuilder) -> UnrolledReduction:
        """Return the reduction over the elements of a window, up to their maximum number."""
        return UnrolledReduction(k, [cell.taps for cell in self.cells])

    def around(self, k: KernelBuilder) -> UnrolledReduction:
        """Return the reduction over the windows that may cover an element."""
        return UnrolledReduction(k, [cell.around for cell in self.cells])

    def start(self, k: KernelBuilder, shape: Shape) -> tuple[Number, Number, list[Number]]:
        """Start a kernel over the elements of a batch; return image, channel and position."""
        n, c, *position = channels_first(self.layout, k.grid(*shape))
        return n, c, position

    def at(self, n: Number, c: Number, position: Sequence[Number]) -> tuple[Number, ...]:
        """Return the indices of an element of a batch."""
        return in_layout(self.layout, (n, c, *position))

    def under(
        self, k: KernelBuilder, y: Sequence[Number], taps: Sequence[Number]
    ) -> tuple[list[Number], Number]:
        """Return the element under a tap of windows, and whether there is one."""
        elements = [
            cell.under(k, *at)
            for cell, at in zip(self.cells, zip(y, taps, strict=True), strict=True)
        ]
        return [position for position, _ in elements], every(*(inside for _, inside in elements))

    def over(
        self, k: KernelBuilder, x: Sequence[Number], iterations: Sequence[Number]
    ) -> tuple[list[Number], Number]:
        """Return a window that may cover an element, and whether it does."""
        candidates = [
            cell.over(k, *at)
            for cell, at in zip(self.cells, zip(x, iterations, strict=True), strict=True)
        ]
        return [y for y, _ in candidates], every(*(inside for _, inside in candidates))

    def share(self, k: KernelBuilder, y: Sequence[Number], dtype: DType) -> Number:
        """Return the divisor of the mean over a window."""
        if self.divisor:
            return float(self.divisor)
        covered = 1
        for cell, position in zip(self.cells, y, strict=True):
            covered = covered * cell.covered(k, position)
        if isinstance(covered, int):
            return float(max(covered, 1))
        return k.astype(k.maximum(covered, 1), dtype)

    def position(self, k: KernelBuilder, position: Sequence[Number]) -> Number:
        """Return the flat index of an element in its image."""
        number: Number = 0
        for axis, at in zip(self.axes, position, strict=True):
            number = number * k.size(axis.size) + at
        return number


def means(k: KernelBuilder, p: PoolGeometry, X: DeviceOperand, Out: DeviceOperand) -> None:
    """Out = the mean under each window."""
    n, c, y = p.start(k, Out.shape)
    reduction = p.taps(k)
    covered = (p.under(k, y, tap) for tap in reduction.all)
    values = [upcast(k, X.at(*p.at(n, c, at), where=inside, other=0)) for at, inside in covered]
    k.store(
        Out,
        p.at(n, c, y),
        reduction.fold("sum", values) / p.share(k, y, compute_dtype(X.type.dtype)),
    )


def means_gradient(
    k: KernelBuilder, p: PoolGeometry, d_Out: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit the gradient of each element: its share of the windows that cover it."""
    n, c, x = p.start(k, d_X.shape)
    reduction, values = p.around(k), list[Number]()
    for iteration in reduction.all:
        y, inside = p.over(k, x, iteration)
        upstream = upcast(k, d_Out.at(*p.at(n, c, y), where=inside, other=0))
        values.append(upstream / p.share(k, y, compute_dtype(d_X.type.dtype)))
    k.store(d_X, p.at(n, c, x), reduction.fold("sum", values))


def largest(
    k: KernelBuilder,
    p: PoolGeometry,
    X: DeviceOperand,
    Out: DeviceOperand | None,
    positions: DeviceOperand | None,
) -> None:
    """Emit the maximum of each window, and the flat index of its first occurrence; -1 for none."""
    like = Out or positions
    assert like is not None
    n, c, y = p.start(k, like.shape)
    reduction, least = p.taps(k), lowest(X.type.dtype)
    covered = [p.under(k, y, tap) for tap in reduction.all]
    values = [X.at(*p.at(n, c, at), where=inside, other=least) for at, inside in covered]
    best = reduction.fold("max", values)
    if Out is not None:
        k.store(Out, p.at(n, c, y), best)
    if positions is None:
        return
    sentinel = k.astype(p.position(k, [k.size(axis.size) for axis in p.axes]), DType.INT32)
    numbers = [
        k.where(
            both(inside, k.equal(value, best)), k.astype(p.position(k, at), DType.INT32), sentinel
        )
        for (at, inside), value in zip(covered, values, strict=True)
    ]
    first = reduction.fold("min", numbers)
    position = k.where(k.equal(first, sentinel), -1, first)
    k.store(positions, p.at(n, c, y), k.astype(position, positions.type.dtype))


def largest_gradient(
    k: KernelBuilder,
    p: PoolGeometry,
    positions: DeviceOperand,
    d_Out: DeviceOperand,
    d_X: DeviceOperand,
) -> None:
    """Emit the gradient of each element: the sum over the windows of which it is the maximum."""
    n, c, x = p.start(k, d_X.shape)
    reduction, own, values = p.around(k), p.position(k, x), list[Number]()
    for iteration in reduction.all:
        y, inside = p.over(k, x, iteration)
        chosen = k.equal(positions.at(*p.at(n, c, y), where=inside, other=-1), own)
        upstream = upcast(k, d_Out.at(*p.at(n, c, y), where=inside, other=0))
        values.append(k.where(chosen, upstream, 0))
    k.store(d_X, p.at(n, c, x), reduction.fold("sum", values))
