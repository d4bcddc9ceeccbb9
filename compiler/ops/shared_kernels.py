"""Kernels shared by many ops: constants, copies, slices of a tensor, gathers and scatters of rows.

Row indices come from the user. On the host an invalid one is an error; in a kernel it is neither
read nor written, and a load yields 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import Array, DType
from compiler.ops.duplicate_rows import merged
from compiler.support.thresholds import threshold

LISTED = threshold(
    "listed_constants", 64, "constants", "more are in an array, not in a kernel's text", small=4,
)  # fmt: skip


def fill(k: KernelBuilder, out: DeviceOperand, value: float) -> None:
    """Emit a kernel that fills out with a constant."""
    (i,) = k.grid(out.type.numel)
    k.store(out.reshaped((out.type.numel,)), (i,), value)


def numbers_of(k: KernelBuilder, out: DeviceOperand, numbers: Sequence[Size | float]) -> None:
    """Emit a kernel for out = constants. Few may be sizes; many are an array on the device, which
    is copied there once for a binding.
    """
    count, dtype = out.type.numel, out.type.dtype
    table = None
    if len(numbers) > LISTED.value:
        constants = k.on_host(constant_array, [*numbers], dtype.numpy.name, hint="constants")
        table = k.to_device(constants, (count,), dtype)
    (i,) = k.grid(count)
    value = listed(k, i, numbers, dtype) if table is None else table[i]
    k.store(out.reshaped((count,)), (i,), value)


def constant_array(numbers: list[float], dtype: str) -> Array:
    """Return numbers as an array."""
    return np.array(numbers, dtype)


def too_many(numbers: int) -> str:
    """The reason why a kernel's text cannot contain this many constants; empty if it can."""
    return f"{numbers} numbers are too many for a kernel's text" * (numbers > LISTED.value)


def listed(
    k: KernelBuilder, index: Number, numbers: Sequence[Size | float], dtype: DType
) -> Number:
    """The element at an index of a list of constants in the kernel's text."""
    value = k.astype(k.astype(index, DType.INT32), dtype) * 0
    for at, entry in enumerate(numbers):
        number = entry if isinstance(entry, float) else k.size(entry)
        value = k.where(k.equal(index, at), number, value)
    return value


def copy(k: KernelBuilder, X: DeviceOperand, out: DeviceOperand) -> None:
    """Emit a kernel that copies the elements of X, unless out is the same memory."""
    if k.aliased(X, out):
        return
    (i,) = k.grid(out.type.numel)
    k.store(out.reshaped((out.type.numel,)), (i,), X.reshaped((out.type.numel,))[i])


def number(k: KernelBuilder, X: DeviceOperand) -> Number:
    """Load the only element of X."""
    return X.reshaped((1,))[0]


def everywhere(k: KernelBuilder, conditions: Sequence[Number]) -> Number | None:
    """The conjunction of all conditions; None if there are none."""
    result = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result


def broadcast_at(shape: Sequence[Size], indices: Sequence[Number]) -> tuple[Number, ...]:
    """The indices of an element in a tensor that is broadcast to a larger shape."""
    trailing = indices[len(indices) - len(shape) :]
    return tuple(0 if size == 1 else index for size, index in zip(shape, trailing, strict=True))


def all_iterations(k: KernelBuilder, condition: Number, over: Number) -> Number:
    """True if a condition holds in all iterations of a loop."""
    return k.not_equal(k.min(k.astype(condition, DType.INT32), over), 0)


def inside(k: KernelBuilder, index: Number, size: Size) -> Number:
    """True if an index is in bounds."""
    return (index >= 0) & (index < k.size(size))


def split_at(shape: Sequence[Size], axis: int) -> tuple[Size, Size, Size]:
    """Split a shape into the sizes before an axis, the axis, and those after it."""
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def with_axis(part: DeviceOperand, axis: int) -> DeviceOperand:
    """A view of a tensor with one more axis, of size 1."""
    shape = list(part.shape)
    shape.insert(axis, 1)
    return part.reshaped(shape)


def window(
    k: KernelBuilder, X: DeviceOperand, out: DeviceOperand, first: Sequence[Size], other: float = 0
) -> None:
    """Emit a kernel for out[i] = X[i + first], and `other` where that is out of bounds.

    `first` has an index for each axis; negative ones pad in front of X.
    """
    indices = k.grid(*out.shape)
    shifted = [
        i if isinstance(n, int) and n == 0 else i + k.size(n)
        for i, n in zip(indices, first, strict=True)
    ]
    axes = zip(shifted, X.shape, out.shape, first, strict=True)
    guards = [inside(k, i, size) for i, size, extent, n in axes if not _within(size, extent, n)]
    where = everywhere(k, guards)
    k.store(
        out,
        indices,
        X[tuple(shifted)] if where is None else X.at(*shifted, where=where, other=other),
    )


def among(
    k: KernelBuilder, indices: Sequence[Number], ranges: Sequence[range | None]
) -> tuple[list[Number], Number | None]:
    """The position in its range of the index on each axis, and whether all are in range.

    A range of None is the whole axis.
    """
    positions, guards = [*indices], list[Number]()
    for axis, span in enumerate(ranges):
        if span is not None:
            step, forward = abs(span.step), span.step > 0
            steps = indices[axis] - span.start if forward else span.start - indices[axis]
            guards.append(inside(k, steps, step * len(span)))
            steps = k.maximum(steps, 0)
            guards += [k.equal(k.mod(steps, step), 0)] if step > 1 else []
            positions[axis] = k.div(steps, step)
    return positions, everywhere(k, guards)


def _within(size: Size, extent: Size, first: Size) -> bool:
    """True if `size` positions from `first` are known to be in bounds of an axis."""
    if not isinstance(first, int):
        return False
    if first == 0 and size == extent:
        return True
    if not isinstance(size, int) or not isinstance(extent, int):
        return False
    return 0 <= first <= size - extent


def tiled(k: KernelBuilder, X: DeviceOperand, out: DeviceOperand) -> None:
    """Emit a kernel for out = X tiled along each axis until out is full."""
    leading = len(out.shape) - len(X.shape)
    indices = k.grid(*out.shape)
    taken = [k.mod(i, k.size(size)) for i, size in zip(indices[leading:], X.shape, strict=True)]
    k.store(out, indices, X[tuple(taken)])


def tile_gradient(k: KernelBuilder, d_out: DeviceOperand, d_X: DeviceOperand) -> None:
    """Emit a kernel for d_X = the sum over all copies that `tiled` makes."""
    leading = len(d_out.shape) - len(d_X.shape)
    sizes = (*(1 for _ in range(leading)), *d_X.shape)
    times = [
        size // part if part != 0 else 1 for size, part in zip(d_out.shape, sizes, strict=True)
    ]
    indices = k.grid(*d_X.shape)
    r = k.loop(product(times))
    copies = k.unravel(r, times)
    inner = (*(0 for _ in range(leading)), *indices)
    at = [n * k.size(part) + i for n, part, i in zip(copies, sizes, inner, strict=True)]
    k.store(d_X, indices, k.sum(d_out[tuple(at)], r))


def gather_slices(
    k: KernelBuilder, X: DeviceOperand, indices: DeviceOperand, out: DeviceOperand, axis: int
) -> None:
    """Emit a gather kernel: out = the slices of X at indices along an axis."""
    before, size, after = split_at(X.shape, axis)
    count = indices.type.numel
    i, n, j = k.grid(before, count, after)
    row = indices.reshaped((count,))[n]
    value = X.reshaped((before, size, after)).at(i, row, j, where=inside(k, row, size), other=0)
    k.store(out.reshaped((before, count, after)), (i, n, j), value)


def add_rows(
    k: KernelBuilder,
    values: DeviceOperand,
    indices: DeviceOperand,
    out: DeviceOperand,
    axis: int = 0,
    leave: int = -1,
    scale: DeviceOperand | None = None,
) -> None:
    """Emit a scatter-add kernel: out[index] += value along an axis, except for index `leave`.

    With `scale`, of one element, the values are multiplied by it and subtracted. Values of repeated
    indices are added in any order, unless a deterministic order is required.
    """
    before, size, after = split_at(out.shape, axis)
    count, viewed = indices.type.numel, out.reshaped((before, size, after))
    groups = merged(k, indices, size) if k.in_order else None
    i, n, j = k.grid(before, count, after)
    row, slices = indices.reshaped((count,))[n], values.reshaped((before, count, after))
    where = inside(k, row, size) if groups is None else groups.length[n] > 0
    if leave >= 0:
        where = where & k.not_equal(row, leave)
    value = slices[i, n, j] if groups is None else groups.sum_of(k, slices, n, i, j)
    value = value if scale is None else -(value * number(k, scale))
    if groups is None:
        k.add(viewed, (i, row, j), value, where)
    else:
        k.store(viewed, (i, row, j), viewed.at(i, row, j, where=where, other=0) + value, where)


def store_sums(
    k: KernelBuilder, values: DeviceOperand, indices: DeviceOperand, out: DeviceOperand
) -> None:
    """Emit kernels for out[index] = the sum of the values of an index, in their order."""
    count, size, width = indices.type.numel, out.shape[0], product(out.shape[1:])
    groups = merged(k, indices, size)
    n, j = k.grid(count, width)
    row = indices.reshaped((count,))[n]
    total = groups.sums(k, values, n, j)
    k.store(out.reshaped((size, width)), (row, j), total, groups.length[n] > 0)


def last_uses(k: KernelBuilder, indices: DeviceOperand, size: Size) -> DeviceOperand:
    """Emit a kernel for the last occurrence of each index of an axis, or -1: [size]; on a GPU."""
    count = indices.type.numel
    last = k.scratch((size,), DType.INT32)
    (i,) = k.grid(size)
    r = k.loop(count)
    candidate = k.where(k.equal(indices.reshaped((count,))[r], i), r, -1)
    k.store(last, (i,), k.max(k.astype(candidate, DType.INT32), r))
    return last


def scatter_slices(
    k: KernelBuilder, values: DeviceOperand, indices: DeviceOperand, out: DeviceOperand, axis: int,
    below: DeviceOperand | None = None,
) -> None:  # fmt: skip
    """Emit scatter kernels: out[index] = value along an axis, the last value if an index repeats.

    Other elements are 0, or those of `below`.
    """
    before, size, after = split_at(out.shape, axis)
    count = indices.type.numel
    if not k.on_gpu:
        if below is None:
            fill(k, out, 0)
        else:
            copy(k, below, out)
        _store_last(k, values.reshaped((before, count, after)), indices, out, axis)
        return
    last = last_uses(k, indices, size)
    i, n, j = k.grid(before, size, after)
    at, viewed = last[n], (before, size, after)
    new = values.reshaped((before, count, after)).at(i, at, j, where=at >= 0, other=0)
    old = 0 if below is None else below.reshaped(viewed)[i, n, j]
    k.store(out.reshaped(viewed), (i, n, j), new if below is None else k.where(at >= 0, new, old))


def _store_last(
    k: KernelBuilder, values: DeviceOperand, indices: DeviceOperand, out: DeviceOperand, axis: int
) -> None:
    """Emit kernels for out[index] = the last value of an index, along an axis."""
    _, size, _ = viewed = split_at(out.shape, axis)
    groups = merged(k, indices, size)
    i, n, j = k.grid(*values.shape)
    leads, row = groups.length[n] > 0, indices.reshaped((indices.type.numel,))[n]
    last = groups.order.at(groups.first[n] + groups.length[n] - 1, where=leads, other=0)
    value = values.at(i, last, j, where=leads, other=0)
    k.store(out.reshaped(viewed), (i, row, j), value, leads)


def indexed_grid(
    k: KernelBuilder, Index: DeviceOperand, shape: Sequence[Size]
) -> tuple[tuple[Number, ...], tuple[Number, ...], Number | None]:
    """Start a kernel over the elements that Index, [.., axes], selects in a shape.

    Returns the element's indices, its position in the shape, and whether that is in bounds.
    """
    count, lead = int(str(Index.shape[-1])), Index.shape[:-1]
    element = k.grid(*lead, *shape[count:])
    listed = tuple(Index[(*element[: len(lead)], axis)] for axis in range(count))
    guards = [inside(k, i, size) for i, size in zip(listed, shape, strict=False)]
    return element, (*listed, *element[len(lead) :]), everywhere(k, guards)
