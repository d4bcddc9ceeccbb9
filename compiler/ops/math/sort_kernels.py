"""Kernels for top-k, sorting and argmax, and for their gradients.

Operands are viewed as three axes and sorted along the middle one. Ties keep their order. NaN is
larger than all numbers and equal to NaN, so that the order is total and every rank has one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.shared_kernels import fill, inside, split_at
from compiler.support.thresholds import threshold

MAX_SELECTED = threshold(
    "selected_values", 16, "values", "a larger k is not selected by reductions: the row is sorted",
    small=2,
)  # fmt: skip
MAX_SORTED = threshold(
    "sorted_values", 4096, "values",
    "a longer row is not sorted in one thread block: ranks are counted", small=5,
)  # fmt: skip
MAX_RANKED = threshold(
    "ranked_values", 65536, "values",
    "a longer row is sorted on the host, since counting ranks is quadratic", small=64,
)  # fmt: skip


def last_value(X: DeviceOperand, largest: bool) -> float:
    """Return the value that is ordered after all others."""
    dtype = X.type.dtype
    if dtype.is_float:
        return float("-inf") if largest else float("inf")
    bits = 8 * dtype.numpy.itemsize - 1
    return -(2**bits) if largest else 2**bits - 1


def precedes(k: KernelBuilder, a: Number, i: Number, b: Number, j: Number, largest: bool) -> Number:
    """Return whether value a at index i is ordered before value b at index j."""
    high, low = (a, b) if largest else (b, a)
    first = k.greater(high, low)
    same = k.equal(a, b)
    if a.dtype.is_float:
        first |= k.isnan(high) & k.equal(low, low)
        same |= k.isnan(a) & k.isnan(b)
    return first | (same & k.less(i, j))


def top_values(
    k: KernelBuilder, X: DeviceOperand, count: int, axis: int, largest: bool,
    Out: DeviceOperand, Indices: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the first `count` values along an axis, sorted, and their indices."""
    if count > (MAX_SELECTED.value if k.on_gpu else 1):
        sort_along(k, X, axis, largest, Out, Indices)
        return
    outer, size, inner = split_at(X.shape, axis)
    x = X.reshaped((outer, size, inner))
    values, indices = (operand.reshaped((outer, count, inner)) for operand in (Out, Indices))
    for n in range(count):
        i, j = k.grid(outer, inner)
        r = k.loop(size)
        value, last = x[i, r, j], last_value(X, largest)
        if n:
            eligible = precedes(k, values[i, n - 1, j], indices[i, n - 1, j], value, r, largest)
        else:
            eligible = r >= 0
        best, index = first_of(k, value, r, eligible, (size, last, largest))
        k.store(values, (i, n, j), best)
        k.store(indices, (i, n, j), index)


def first_of(
    k: KernelBuilder, value: Number, r: Number, known: Number, order: tuple[Size, float, bool]
) -> tuple[Number, Number]:
    """Return the first candidate of an order and its index; `known` selects candidates of a row.

    `order` is the size of the row, the last value of the order, and whether the largest is first.
    The smallest is NaN only if all candidates are, whose indices then follow those of the row.
    """
    size, last, largest = order
    beyond = k.size(size) - 1
    if not value.dtype.is_float:
        candidates = k.where(known, value, last)
        best = k.max(candidates, r) if largest else k.min(candidates, r)
        return best, lowest(k, k.where(known & k.equal(value, best), r, beyond), r)
    missing = k.isnan(value)
    if largest:
        best = k.max(k.where(known, value, last), r)
        return best, lowest(k, k.where(known & (k.equal(value, best) | missing), r, beyond), r)
    best = k.min(k.where(known & k.equal(value, value), value, last), r)
    position = k.where(known & missing, r + k.size(size), 2 * k.size(size) - 1)
    position = lowest(k, k.where(known & k.equal(value, best), r, position), r)
    is_number = k.less(position, k.size(size))
    index = k.where(is_number, position, position - k.size(size))
    return k.where(is_number, best, float("nan")), index


def lowest(k: KernelBuilder, index: Number, r: Number) -> Number:
    """Return the minimum of indices over a loop, as int32."""
    return k.min(k.astype(index, DType.INT32), r)


def fits_one_sort(x: DeviceOperand) -> bool:
    """Return whether a row fits into one sort: at most MAX_SORTED values of at most 4 bytes."""
    size = x.shape[1]
    return isinstance(size, int) and size <= MAX_SORTED.value and x.type.dtype.itemsize <= 4


def host_reason(types: Mapping[str, Any], axis: int, count: Size | None) -> str:
    """Return why the rows of X have no sorting kernel on a GPU; empty if they have one."""
    X = types.get("X")
    size = None if X is None else X.shape[axis]
    few = isinstance(count, int) and count <= MAX_SELECTED.value
    long = isinstance(size, int) and size > MAX_RANKED.value and not few
    return f"it sorts rows of more than {MAX_RANKED.value} values" if long else ""


def sort_along(
    k: KernelBuilder, X: DeviceOperand, axis: int, largest: bool, values: DeviceOperand,
    indices: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for the first values along an axis, as many as `values` has, sorted.

    A row that a GPU's thread block cannot sort has its ranks counted, which is quadratic.
    """
    if k.sorting(axis, largest, X, values, indices):
        return
    outer, size, inner = split_at(X.shape, axis)
    count = values.shape[axis]
    x = X.reshaped((outer, size, inner))
    values, indices = (operand.reshaped((outer, count, inner)) for operand in (values, indices))
    if not fits_one_sort(x):
        sort_by_rank(k, x, largest, values, indices, count)
        return
    i, j = k.grid(outer, inner)
    r = k.loop(size)
    index = k.argsort(x[i, r, j], r, largest)
    in_range = r < k.size(count)
    k.store(values, (i, r, j), x.at(i, index, j, where=in_range), in_range)
    k.store(indices, (i, r, j), index, in_range)


def sort_by_rank(
    k: KernelBuilder, x: DeviceOperand, largest: bool, values: DeviceOperand,
    indices: DeviceOperand, count: Size,
) -> None:  # fmt: skip
    """Emit a kernel that stores each value at its rank, skipping ranks from `count` on."""
    outer, size, inner = x.shape
    i, n, j = k.grid(outer, size, inner)
    r = k.loop(size)
    own = x[i, n, j]
    first = precedes(k, x[i, r, j], r, own, n, largest)
    rank = k.sum(k.astype(first, DType.INT32), r)
    in_range = rank < k.size(count)
    k.store(values, (i, rank, j), own, in_range)
    k.store(indices, (i, rank, j), n, in_range)


def scatter_along(
    k: KernelBuilder, values: DeviceOperand, Indices: DeviceOperand, out: DeviceOperand, axis: int
) -> None:
    """Emit kernels that scatter values along an axis of zeros, the gradient of a gather."""
    fill(k, out, 0)
    outer, size, inner = split_at(out.shape, axis)
    shape = (outer, values.shape[axis], inner)
    i, n, j = k.grid(*shape)
    index = Indices.reshaped(shape)[i, n, j]
    value = values.reshaped(shape)[i, n, j]
    k.store(out.reshaped((outer, size, inner)), (i, index, j), value, inside(k, index, size))


def arg_min_max(
    k: KernelBuilder, X: DeviceOperand, axis: int, largest: bool, Out: DeviceOperand
) -> None:
    """Emit a kernel for the index of the maximum or minimum along an axis."""
    outer, size, inner = split_at(X.shape, axis)
    i, j = k.grid(outer, inner)
    r = k.loop(size)
    value = X.reshaped((outer, size, inner))[i, r, j]
    best = k.max(value, r) if largest else k.min(value, r)
    is_best = k.equal(value, best)
    if X.type.dtype.is_float:
        is_best |= k.isnan(value)  # then the best is NaN, which equals nothing
    index = k.where(is_best, r, k.size(size) - 1)
    k.store(Out.reshaped((outer, inner)), (i, j), lowest(k, index, r))
