"""Kernels that ops of many kinds share: constants, copies, windows of a tensor, rows by number.

A number of a row comes from the user. On the host a wrong one is an error; in a kernel nothing is
read or written there, and what it should have given is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.duplicate_rows import merged


def fill(k: KernelBuilder, out: DeviceOperand, value: float) -> None:
    """A kernel for out = one number everywhere."""
    (i,) = k.grid(out.type.numel)
    k.store(out.reshaped((out.type.numel,)), (i,), value)


def numbers_of(k: KernelBuilder, out: DeviceOperand, numbers: Sequence[Size | float]) -> None:
    """A kernel for out = a few numbers, which may be sizes."""
    (i,) = k.grid(out.type.numel)
    k.store(out.reshaped((out.type.numel,)), (i,), listed(k, i, numbers, out.type.dtype))


LISTED = 64
"""Numbers that a kernel may have in its text."""


def too_many(numbers: int) -> str:
    """Why so many numbers do not stand in the text of a kernel; empty where they do."""
    return f"{numbers} numbers are too many for a kernel's text" * (numbers > LISTED)


def listed(
    k: KernelBuilder, place: Number, numbers: Sequence[Size | float], dtype: DType
) -> Number:
    """The number at a place of a list, which stands in the kernel's text."""
    value = k.astype(k.astype(place, DType.INT32), dtype) * 0
    for at, each in enumerate(numbers):
        number = each if isinstance(each, float) else k.size(each)
        value = k.where(k.equal(place, at), number, value)
    return value


def copy(k: KernelBuilder, X: DeviceOperand, out: DeviceOperand) -> None:
    """A kernel for out = the elements of X in their order, unless they are there already."""
    if k.aliased(X, out):
        return
    (i,) = k.grid(out.type.numel)
    k.store(out.reshaped((out.type.numel,)), (i,), X.reshaped((out.type.numel,))[i])


def number(k: KernelBuilder, X: DeviceOperand) -> Number:
    """The only element of X, in every lane."""
    return X.reshaped((1,))[0]


def everywhere(k: KernelBuilder, conditions: Sequence[Number]) -> Number | None:
    """Whether all conditions hold; None where there are none."""
    result = None
    for each in conditions:
        result = each if result is None else result & each
    return result


def broadcast_at(shape: Sequence[Size], indices: Sequence[Number]) -> tuple[Number, ...]:
    """The indices, in a tensor that broadcasts to more, of what stands at an element there."""
    own = indices[len(indices) - len(shape) :]
    return tuple(0 if size == 1 else index for size, index in zip(shape, own, strict=True))


def holds_everywhere(k: KernelBuilder, condition: Number, over: Number) -> Number:
    """Whether a condition holds in all turns of a loop."""
    return k.not_equal(k.min(k.astype(condition, DType.INT32), over), 0)


def inside(k: KernelBuilder, index: Number, size: Size) -> Number:
    """Whether an index is a place of an axis."""
    return (index >= 0) & (index < k.size(size))


def split_at(shape: Sequence[Size], axis: int) -> tuple[Size, Size, Size]:
    """A shape as what lies before an axis, the axis, and what lies behind it."""
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def with_axis(part: DeviceOperand, axis: int) -> DeviceOperand:
    """A tensor seen with one axis more, of size 1."""
    shape = list(part.shape)
    shape.insert(axis, 1)
    return part.reshaped(shape)


def window(
    k: KernelBuilder, X: DeviceOperand, out: DeviceOperand, first: Sequence[Size], other: float = 0
) -> None:
    """A kernel for out[i] = X[i + first], and `other` where X has no such element.

    `first` has a place for each axis; negative ones leave room in front of X.
    """
    indices = k.grid(*out.shape)
    moved = [
        i if isinstance(n, int) and n == 0 else i + k.size(n)
        for i, n in zip(indices, first, strict=True)
    ]
    axes = zip(moved, X.shape, out.shape, first, strict=True)
    guards = [inside(k, i, size) for i, size, wide, n in axes if not _within(size, wide, n)]
    where = everywhere(k, guards)
    k.store(
        out, indices, X[tuple(moved)] if where is None else X.at(*moved, where=where, other=other)
    )


def among(
    k: KernelBuilder, indices: Sequence[Number], ranges: Sequence[range | None]
) -> tuple[list[Number], Number | None]:
    """Which place of a range the index on each axis is, and whether all are in theirs.

    A range of None is the whole of an axis.
    """
    found, guards = [*indices], list[Number]()
    for axis, places in enumerate(ranges):
        if places is not None:
            step, ahead = abs(places.step), places.step > 0
            steps = indices[axis] - places.start if ahead else places.start - indices[axis]
            guards.append(inside(k, steps, step * len(places)))
            steps = k.maximum(steps, 0)
            guards += [k.equal(k.mod(steps, step), 0)] if step > 1 else []
            found[axis] = k.div(steps, step)
    return found, everywhere(k, guards)


def _within(size: Size, wide: Size, first: Size) -> bool:
    """True where it is known that so many places from `first` on are all of an axis."""
    if not isinstance(first, int):
        return False
    if first == 0 and size == wide:
        return True
    if not isinstance(size, int) or not isinstance(wide, int):
        return False
    return 0 <= first <= size - wide


def tiled(k: KernelBuilder, X: DeviceOperand, out: DeviceOperand) -> None:
    """A kernel for out = X laid out side by side along each axis until out is full."""
    ahead = len(out.shape) - len(X.shape)
    indices = k.grid(*out.shape)
    taken = [k.mod(i, k.size(size)) for i, size in zip(indices[ahead:], X.shape, strict=True)]
    k.store(out, indices, X[tuple(taken)])


def untiled(k: KernelBuilder, d_out: DeviceOperand, d_X: DeviceOperand) -> None:
    """A kernel for d_X = the sum over all copies that `tiled` lays out."""
    ahead = len(d_out.shape) - len(d_X.shape)
    sizes = (*(1 for _ in range(ahead)), *d_X.shape)
    times = [size // part for size, part in zip(d_out.shape, sizes, strict=True)]
    indices = k.grid(*d_X.shape)
    turn = k.loop(product(times))
    copies = k.unravel(turn, times)
    own = (*(0 for _ in range(ahead)), *indices)
    at = [n * k.size(part) + i for n, part, i in zip(copies, sizes, own, strict=True)]
    k.store(d_X, indices, k.sum(d_out[tuple(at)], turn))


def take_rows(
    k: KernelBuilder, X: DeviceOperand, places: DeviceOperand, out: DeviceOperand, axis: int
) -> None:
    """A kernel for out = the slices of X at places along an axis."""
    before, size, behind = split_at(X.shape, axis)
    count = places.type.numel
    i, n, j = k.grid(before, count, behind)
    row = places.reshaped((count,))[n]
    value = X.reshaped((before, size, behind)).at(i, row, j, where=inside(k, row, size), other=0)
    k.store(out.reshaped((before, count, behind)), (i, n, j), value)


def add_rows(
    k: KernelBuilder,
    values: DeviceOperand,
    places: DeviceOperand,
    out: DeviceOperand,
    axis: int = 0,
    leave: int = -1,
    scale: DeviceOperand | None = None,
) -> None:
    """A kernel for out[place] += value along an axis; the place `leave` gets nothing.

    With `scale`, of one element, the values are multiplied by it and taken away. Where a place
    repeats its values come in any order, unless everything is to be done in one order.
    """
    before, size, behind = split_at(out.shape, axis)
    count, whole = places.type.numel, out.reshaped((before, size, behind))
    found = merged(k, places, size) if k.in_order else None
    i, n, j = k.grid(before, count, behind)
    row, given = places.reshaped((count,))[n], values.reshaped((before, count, behind))
    where = inside(k, row, size) if found is None else found.length[n] > 0
    if leave >= 0:
        where = where & k.not_equal(row, leave)
    value = given[i, n, j] if found is None else found.sum_of(k, given, n, i, j)
    value = value if scale is None else -(value * number(k, scale))
    if found is None:
        k.add(whole, (i, row, j), value, where)
    else:
        k.store(whole, (i, row, j), whole.at(i, row, j, where=where, other=0) + value, where)


def last_uses(k: KernelBuilder, places: DeviceOperand, size: Size) -> DeviceOperand:
    """A kernel for the last position at which each place of an axis stands, or -1: [size]."""
    count = places.type.numel
    last = k.scratch((size,), DType.INT32)
    (i,) = k.grid(size)
    r = k.loop(count)
    found = k.where(k.equal(places.reshaped((count,))[r], i), r, -1)
    k.store(last, (i,), k.max(k.astype(found, DType.INT32), r))
    return last


def put_rows(
    k: KernelBuilder, values: DeviceOperand, places: DeviceOperand, out: DeviceOperand, axis: int,
    below: DeviceOperand | None = None,
) -> None:  # fmt: skip
    """Kernels for out[place] = value along an axis, the last value where a place repeats.

    What no place names is 0, or what `below` has there.
    """
    before, size, behind = split_at(out.shape, axis)
    count = places.type.numel
    last = last_uses(k, places, size)
    i, n, j = k.grid(before, size, behind)
    at, whole = last[n], (before, size, behind)
    new = values.reshaped((before, count, behind)).at(i, at, j, where=at >= 0, other=0)
    old = 0 if below is None else below.reshaped(whole)[i, n, j]
    k.store(out.reshaped(whole), (i, n, j), new if below is None else k.where(at >= 0, new, old))


def listed_places(
    k: KernelBuilder, Index: DeviceOperand, shape: Sequence[Size]
) -> tuple[tuple[Number, ...], tuple[Number, ...], Number | None]:
    """Begin a kernel with a lane for each element that Index, [.., axes], names in a shape.

    Gives the lane's indices, its place in the shape, and whether that is inside.
    """
    count, lead = int(str(Index.shape[-1])), Index.shape[:-1]
    lanes = k.grid(*lead, *shape[count:])
    listed = tuple(Index[(*lanes[: len(lead)], axis)] for axis in range(count))
    guards = [inside(k, i, size) for i, size in zip(listed, shape, strict=False)]
    return lanes, (*listed, *lanes[len(lead) :]), everywhere(k, guards)
