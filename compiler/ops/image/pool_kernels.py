"""Device kernels of pooling: one program per window, and in gradients one per element.

The gradient of an element is gathered from the windows that cover it, so the order of additions is
deterministic. The index of each window's maximum is computed once, before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType, Shape, lowest
from compiler.ir.windows import PoolGeometry, Window
from compiler.ops.image.conv_geometry import both, every, plus, times, within
from compiler.ops.image.layouts import channels_first, in_layout
from compiler.ops.image.unrolled_reductions import UnrolledReduction
from compiler.ops.norm.channel_kernels import compute_dtype, upcast


def max_taps(window: Window) -> Size:
    """Return the maximum number of elements at a position."""
    if not window.is_divided:
        return window.kernel
    return window.size if window.count == 1 else window.size // window.count + 2


def max_positions(window: Window) -> Size:
    """Return the maximum number of positions that cover an element.

    If an axis is divided, those are the cells that overlap the element's own share of them.
    """
    if window.is_divided:
        count, size = window.count, window.size
        if isinstance(count, int) and isinstance(size, int) and size > 0:
            return min(count, -(-count // size) + 1)
        return count
    return (window.kernel + window.stride - 1) // window.stride


def window_span(k: KernelBuilder, window: Window, y: Number) -> tuple[Number, Number]:
    """Return start and stop of a position, including its part outside the image."""
    if not window.is_divided:
        start = times(y, window.stride) - k.size(window.before)
        return start, start + k.size(window.kernel)
    count, size = k.size(window.count), k.size(window.size)
    return k.div(y * size, count), k.div((y + 1) * size + (count - 1), count)


def covered_count(k: KernelBuilder, window: Window, y: Number) -> Number:
    """Return the number of image elements that a position covers."""
    start, stop = window_span(k, window, y)
    if window.is_divided:
        return stop - start
    last = (window.count - 1) * window.stride + window.kernel
    size = window.size
    if window.is_padless and isinstance(last, int) and isinstance(size, int) and last <= size:
        return window.kernel
    return k.minimum(stop, k.size(size)) - k.maximum(start, 0)


def element_under(
    k: KernelBuilder, window: Window, y: Number, tap: Number
) -> tuple[Number, Number]:
    """Return the element under a tap at a position, and whether there is one."""
    start, stop = window_span(k, window, y)
    if window.is_divided:
        position = start + tap
        return position, every(position < k.size(window.size), position < stop)
    shift = tap - k.size(window.before)
    position = plus(shift, times(y, window.stride))
    reach = (window.count - 1) * window.stride
    return position, within(k, position, shift, reach, window.size)


def position_over(
    k: KernelBuilder, window: Window, x: Number, iteration: Number
) -> tuple[Number, Number]:
    """Return the `iteration`-th position that may cover an element, and whether it does."""
    if not window.is_divided:
        y = k.div(x + k.size(window.before), window.stride) - iteration
    elif isinstance(window.size, int) and window.size > 0 and window.count != 1:
        y = k.div(x * k.size(window.count), window.size) + iteration
    else:
        y = iteration
    start, stop = window_span(k, window, y)
    return y, every(y >= 0, y < k.size(window.count), start <= x, x < stop)


def taps_of(k: KernelBuilder, p: PoolGeometry) -> UnrolledReduction:
    """Return the reduction over the elements of a window, up to their maximum number."""
    return UnrolledReduction(k, [max_taps(window) for window in p.windows])


def positions_around(k: KernelBuilder, p: PoolGeometry) -> UnrolledReduction:
    """Return the reduction over the positions that may cover an element."""
    return UnrolledReduction(k, [max_positions(window) for window in p.windows])


def start_kernel(
    k: KernelBuilder, p: PoolGeometry, shape: Shape
) -> tuple[Number, Number, list[Number]]:
    """Start a kernel over the elements of a batch; return image, channel and position."""
    n, c, *position = channels_first(p.layout, k.grid(*shape))
    return n, c, position


def element_index(
    p: PoolGeometry, n: Number, c: Number, position: Sequence[Number]
) -> tuple[Number, ...]:
    """Return the indices of an element of a batch."""
    return in_layout(p.layout, (n, c, *position))


def elements_under(
    k: KernelBuilder, p: PoolGeometry, y: Sequence[Number], taps: Sequence[Number]
) -> tuple[list[Number], Number]:
    """Return the element under a tap on each axis, and whether there is one."""
    triples = zip(p.windows, y, taps, strict=True)
    elements = [element_under(k, *triple) for triple in triples]
    return [position for position, _ in elements], every(*(inside for _, inside in elements))


def positions_over(
    k: KernelBuilder, p: PoolGeometry, x: Sequence[Number], iterations: Sequence[Number]
) -> tuple[list[Number], Number]:
    """Return a position that may cover an element, and whether it does."""
    triples = zip(p.windows, x, iterations, strict=True)
    candidates = [position_over(k, *triple) for triple in triples]
    return [y for y, _ in candidates], every(*(inside for _, inside in candidates))


def mean_divisor(k: KernelBuilder, p: PoolGeometry, y: Sequence[Number], dtype: DType) -> Number:
    """Return the divisor of the mean at a position."""
    if p.divisor:
        return float(p.divisor)
    covered = 1
    for window, position in zip(p.windows, y, strict=True):
        covered = covered * covered_count(k, window, position)
    if isinstance(covered, int):
        return float(max(covered, 1))
    return k.astype(k.maximum(covered, 1), dtype)


def flat_index(k: KernelBuilder, p: PoolGeometry, position: Sequence[Number]) -> Number:
    """Return the flat index of an element in its image."""
    number: Number = 0
    for window, at in zip(p.windows, position, strict=True):
        number = number * k.size(window.size) + at
    return number


def means(k: KernelBuilder, p: PoolGeometry, X: DeviceOperand, Out: DeviceOperand) -> None:
    """Out = the mean under each window."""
    n, c, y = start_kernel(k, p, Out.shape)
    reduction = taps_of(k, p)
    covered = (elements_under(k, p, y, tap) for tap in reduction.all)
    values = [
        upcast(k, X.at(*element_index(p, n, c, at), where=inside, other=0))
        for at, inside in covered
    ]
    divisor = mean_divisor(k, p, y, compute_dtype(X.type.dtype))
    k.store(Out, element_index(p, n, c, y), reduction.fold("sum", values) / divisor)


def means_gradient(
    k: KernelBuilder, p: PoolGeometry, d_Out: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Emit the gradient of each element: its share of the windows that cover it."""
    n, c, x = start_kernel(k, p, d_X.shape)
    reduction, values = positions_around(k, p), list[Number]()
    for iteration in reduction.all:
        y, inside = positions_over(k, p, x, iteration)
        upstream = upcast(k, d_Out.at(*element_index(p, n, c, y), where=inside, other=0))
        values.append(upstream / mean_divisor(k, p, y, compute_dtype(d_X.type.dtype)))
    k.store(d_X, element_index(p, n, c, x), reduction.fold("sum", values))


def largest(
    k: KernelBuilder,
    p: PoolGeometry,
    X: DeviceOperand,
    Out: DeviceOperand,
    positions: DeviceOperand | None,
) -> None:
    """Emit the maximum of each window, at least the lowest number, and the flat index of its first
    occurrence; -1 for none.
    """
    n, c, y = start_kernel(k, p, Out.shape)
    reduction, covered, values = _values_under(k, p, X, n, c, y)
    best = k.maximum(reduction.fold("max", values), lowest(X.type.dtype))
    k.store(Out, element_index(p, n, c, y), best)
    if positions is not None:
        position = _first_position(k, p, reduction, covered, values, best)
        k.store(positions, element_index(p, n, c, y), k.astype(position, positions.type.dtype))


def positions_of(
    k: KernelBuilder,
    p: PoolGeometry,
    X: DeviceOperand,
    value_at: Callable[[Number, Number, Sequence[Number]], Number],
    positions: DeviceOperand,
) -> None:
    """Emit the flat index of the first element of each window that has its value; -1 for none.

    `value_at` loads the value of a window, given image, channel and place of the window.
    """
    n, c, y = start_kernel(k, p, positions.shape)
    reduction, covered, values = _values_under(k, p, X, n, c, y)
    position = _first_position(k, p, reduction, covered, values, value_at(n, c, y))
    k.store(positions, element_index(p, n, c, y), k.astype(position, positions.type.dtype))


Covered = Sequence[tuple[Sequence[Number], Number]]
"""Places of elements, and whether they are inside of the image."""


def _values_under(
    k: KernelBuilder, p: PoolGeometry, X: DeviceOperand, n: Number, c: Number, y: Sequence[Number]
) -> tuple[UnrolledReduction, Covered, list[Number]]:
    """Return the taps of a window, the elements under them, and their values."""
    reduction, least = taps_of(k, p), lowest(X.type.dtype)
    covered = [elements_under(k, p, y, tap) for tap in reduction.all]
    values = [
        X.at(*element_index(p, n, c, at), where=inside, other=least) for at, inside in covered
    ]
    return reduction, covered, values


def _first_position(
    k: KernelBuilder,
    p: PoolGeometry,
    reduction: UnrolledReduction,
    covered: Covered,
    values: Sequence[Number],
    best: Number,
) -> Number:
    """Return the flat index of the first element that equals `best`; -1 if none does."""
    end = flat_index(k, p, [k.size(window.size) for window in p.windows])
    sentinel = k.astype(end, DType.INT32)
    numbers = [
        k.where(
            both(inside, k.equal(value, best)),
            k.astype(flat_index(k, p, at), DType.INT32),
            sentinel,
        )
        for (at, inside), value in zip(covered, values, strict=True)
    ]
    first = reduction.fold("min", numbers)
    return k.where(k.equal(first, sentinel), -1, first)


def largest_gradient(
    k: KernelBuilder,
    p: PoolGeometry,
    positions: DeviceOperand,
    d_Out: DeviceOperand,
    d_X: DeviceOperand,
) -> None:
    """Emit the gradient of each element: the sum over the windows of which it is the maximum."""
    n, c, x = start_kernel(k, p, d_X.shape)
    reduction, own, values = positions_around(k, p), flat_index(k, p, x), list[Number]()
    for iteration in reduction.all:
        y, inside = positions_over(k, p, x, iteration)
        chosen = k.equal(positions.at(*element_index(p, n, c, y), where=inside, other=-1), own)
        upstream = upcast(k, d_Out.at(*element_index(p, n, c, y), where=inside, other=0))
        values.append(k.where(chosen, upstream, 0))
    k.store(d_X, element_index(p, n, c, x), reduction.fold("sum", values))
