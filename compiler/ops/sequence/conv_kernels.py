"""Kernels of the sequence convolution: matrix products of windows, gathered while loading."""

from __future__ import annotations

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number, Operand
from compiler.ir.types import Shape
from compiler.ops.sequence.sequence_kernels import rows_bounds


class Window:
    """The window of each row: `length` rows of its sequence, from relative offset `start`."""

    def __init__(self, k: KernelBuilder, level: Operand, X: Shape, start: int, length: int) -> None:
        self.k = k
        self.bounds = rows_bounds(k, level, X[0])
        self.rows: Size = X[0]
        self.size: Size = X[1]
        self.start = start
        self.length = length

    @property
    def width(self) -> Size:
        """The number of elements in a window."""
        return self.length * self.size

    def split(self, place: Number) -> tuple[Number, Number]:
        """Split an element's index in the window into time step and column."""
        step, column = self.k.unravel(place, (self.length, self.size))
        return step, column

    def inside(self, row: Number, seen: Number) -> Number:
        """True if the row `seen` is in the sequence of `row`."""
        return (seen >= self.bounds[0, row]) & (seen < self.bounds[1, row])

    def border(self, row: Number, seen: Number) -> Number:
        """The row of the padding to use where the window leaves the sequence."""
        begin, end = self.bounds[0, row], self.bounds[1, row]
        return self.k.where(seen < begin, seen - begin, seen - end) + max(0, -self.start)

    def value(
        self, X: DeviceOperand, padding: DeviceOperand | None, row: Number, place: Number
    ) -> Number:
        """Load an element of a row's window."""
        step, column = self.split(place)
        seen = row + step + self.start
        inside = self.inside(row, seen)
        loaded = X.at(seen, column, where=inside, other=0)
        if padding is None:
            return loaded
        beyond = self.border(row, seen)
        there = (beyond >= 0) & (beyond < self.k.size(padding.shape[0])) & ~inside
        return loaded + padding.at(beyond, column, where=there, other=0)


def convolve(
    k: KernelBuilder, window: Window, X: DeviceOperand, padding: DeviceOperand | None,
    Filter: DeviceOperand, Out: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for Out = windows @ Filter."""
    _, i, j, left, right = k.tiles((), Out.shape[0], Out.shape[1], window.width)
    k.store(Out, (i, j), k.contract(window.value(X, padding, i, left), Filter[right, j]))


def rows_gradient(
    k: KernelBuilder,
    window: Window,
    Filter: DeviceOperand,
    d_Out: DeviceOperand,
    d_X: DeviceOperand,
) -> None:
    """Emit a kernel for d_X, the sum over all windows that contain a row."""
    filters = Filter.shape[1]
    _, i, j, left, right = k.tiles((), d_X.shape[0], d_X.shape[1], window.length * filters)
    step, filter = k.unravel(left, (window.length, filters))
    seeing = i - step - window.start
    above = d_Out.at(seeing, filter, where=window.inside(i, seeing), other=0)
    step, filter = k.unravel(right, (window.length, filters))
    weights = Filter.reshaped((window.length, window.size, filters))
    k.store(d_X, (i, j), k.contract(above, weights[step, j, filter]))


def filter_gradient(
    k: KernelBuilder, window: Window, X: DeviceOperand, padding: DeviceOperand | None,
    d_Out: DeviceOperand, d_Filter: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for d_Filter = windows.T @ d_Out."""
    _, i, j, left, right = k.tiles((), d_Filter.shape[0], d_Filter.shape[1], window.rows)
    k.store(d_Filter, (i, j), k.contract(window.value(X, padding, left, i), d_Out[right, j]))


def padding_gradient(
    k: KernelBuilder,
    window: Window,
    Filter: DeviceOperand,
    d_Out: DeviceOperand,
    d_padding: DeviceOperand,
) -> None:
    """Emit kernels that add to d_padding the gradients of positions outside the sequences."""
    d_windows = k.scratch((window.rows, window.width), d_Out.type.dtype)
    k.matmul(d_windows, d_Out, Filter, transposed=(False, True))
    row, place = k.grid(*d_windows.shape)
    step, column = window.split(place)
    seen = row + step + window.start
    outside = ~window.inside(row, seen)
    k.add(d_padding, (window.border(row, seen), column), d_windows[row, place], outside)
