"""Kernels for sparse gradients with repeated rows: which rows are equal, and their sums.

A CPU sorts the rows. On a GPU few rows are sorted by counting, for each, the rows before it in
order of index; of many rows, each chunk is sorted in this way, and each row is searched in all
sorted chunks. The sum of equal rows is computed by the first of them, in their order, and so is
deterministic.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

CHUNK = threshold(
    "counted_rows", 1024, "rows",
    "more rows of a sparse gradient are sorted in chunks, a power of two", small=8,
)  # fmt: skip


@dataclass(frozen=True)
class Merged:
    """Rows grouped by index.

    `order` [count] has the positions of rows, equal ones adjacent; `first` is the begin of a row's
    group in it, `length` its size: 0 for all but the first row of a group, and for indices out of
    range. `place` is the rank of a row's index among the distinct ones, if that is known.
    """

    order: DeviceOperand
    first: DeviceOperand
    length: DeviceOperand
    place: DeviceOperand | None = None

    def sums(self, k: KernelBuilder, values: DeviceOperand, n: Number, j: Number) -> Number:
        """The sum of column j over all rows equal to row n."""
        count = self.order.shape[0]
        return self.sum_of(k, values.reshaped((1, count, product(values.shape[1:]))), n, 0, j)

    def sum_of(
        self, k: KernelBuilder, values: DeviceOperand, n: Number, i: Number, j: Number
    ) -> Number:
        """The same for values whose rows are the middle one of three axes."""
        r = k.loop(self.order.shape[0], self.length[n])
        mine = r < self.length[n]
        row = self.order.at(self.first[n] + r, where=mine, other=0)
        return k.sum(values.at(i, row, j, where=mine, other=0), r)


def merged(k: KernelBuilder, rows: DeviceOperand, height: Size | None = None) -> Merged:
    """Emit kernels that group equal rows; with `height`, only indices below it."""
    count = rows.type.numel
    indices = rows.reshaped((count,))
    if not k.on_gpu:
        return _sorted_groups(k, indices, height)
    result = Merged(*(k.scratch((count,), DType.INT32) for _ in range(3)))
    few = isinstance(count, int) and count <= CHUNK.value
    ranked = None if few else _sorted_chunks(k, indices)
    (n,) = k.grid(count)
    mine = indices[n]
    if ranked is None:
        position, length, ahead = _counted(k, indices, n)
    else:
        position, length, ahead = _searched(k, mine, n, *ranked)
    leads = k.equal(ahead, 0)
    if height is not None:
        leads = leads & (mine >= 0) & (mine < k.size(height))
    k.store(result.order, (position,), n)
    k.store(result.first, (n,), position)
    k.store(result.length, (n,), k.where(leads, length, 0))
    return result


def _sorted_groups(k: KernelBuilder, indices: DeviceOperand, height: Size | None) -> Merged:
    """Emit kernels that group equal rows by a sort."""
    count = indices.shape[0]
    ordered, order = k.scratch((count,), indices.type.dtype), k.scratch((count,), DType.INT64)
    k.sorting(0, False, indices, ordered, order)
    groups, begins, first, length, place = (k.scratch((count,), DType.INT32) for _ in range(5))
    k.grid(1)
    r = k.loop(count)
    begins_group = k.equal(r, 0) | k.not_equal(ordered.at(r - 1, where=r > 0, other=0), ordered[r])
    group = k.cumsum(k.astype(begins_group, DType.INT32), r) - 1
    k.store(groups, (r,), group)
    k.store(begins, (group,), r, begins_group)
    (p,) = k.grid(count)
    group, mine, n, all_rows = groups[p], ordered[p], order[p], k.size(count)
    begin = begins[group]
    has_next = k.less(group, groups[all_rows - 1])
    end = k.where(has_next, begins.at(group + 1, where=has_next, other=0), all_rows)
    leads = k.equal(p, begin)
    if height is not None:
        leads = leads & (mine >= 0) & (mine < k.size(height))
    k.store(first, (n,), p)
    k.store(length, (n,), k.where(leads, end - begin, 0))
    k.store(place, (n,), group)
    return Merged(order, first, length, place)


def _counted(k: KernelBuilder, indices: DeviceOperand, n: Number) -> tuple[Number, Number, Number]:
    """Row n's position in order of index, and the rows equal to it: all, and those before it."""
    r, mine = k.loop(indices.shape[0]), indices[n]
    other = indices[r]
    same = k.equal(other, mine)
    before = same & k.less(r, n)
    conditions = (k.less(other, mine) | before, same, before)
    position, length, ahead = (
        k.sum(k.astype(condition, DType.INT32), r) for condition in conditions
    )
    return position, length, ahead


def _sorted_chunks(k: KernelBuilder, indices: DeviceOperand) -> tuple[DeviceOperand, DeviceOperand]:
    """Emit a kernel that sorts each chunk by counting, and stores the rank of each row in its own.

    Equal indices keep their order.
    """
    count = indices.shape[0]
    chunks, ranks = k.scratch((count,), indices.type.dtype), k.scratch((count,), DType.INT32)
    (n,) = k.grid(count)
    r = k.loop(CHUNK.value)
    begin = k.div(n, CHUNK.value) * CHUNK.value
    place, mine = begin + r, indices[n]
    in_bounds = k.less(place, k.size(count))
    other = indices.at(place, where=in_bounds, other=0)
    first = in_bounds & (k.less(other, mine) | (k.equal(other, mine) & k.less(place, n)))
    rank = k.sum(k.astype(first, DType.INT32), r)
    k.store(ranks, (n,), rank)
    k.store(chunks, (begin + rank,), mine)
    return chunks, ranks


def _searched(
    k: KernelBuilder, mine: Number, n: Number, chunks: DeviceOperand, ranks: DeviceOperand
) -> tuple[Number, Number, Number]:
    """The same as `_counted` by binary search in each sorted chunk.

    An unknown number of chunks is taken as small: with an end, a loop takes narrow tiles.
    """
    count = chunks.shape[0]
    number = (count + CHUNK.value - 1) // CHUNK.value
    c = k.loop(number, None if isinstance(number, int) else k.size(number))
    own = k.div(n, CHUNK.value)
    below = _bound(k, chunks, c, lambda value: k.less(value, mine))
    upto = _bound(k, chunks, c, lambda value: value <= mine)
    rank, earlier, here = ranks[n], k.less(c, own), k.equal(c, own)
    position = k.where(here, rank, k.where(earlier, upto, below))
    ahead = k.where(here, rank - below, k.where(earlier, upto - below, 0))
    counts = (position, upto - below, ahead)
    position, length, ahead = (k.sum(k.astype(counted, DType.INT32), c) for counted in counts)
    return position, length, ahead


def _bound(
    k: KernelBuilder, chunks: DeviceOperand, c: Number, holds: Callable[[Number], Number]
) -> Number:
    """How many values at the beginning of a sorted chunk satisfy a condition."""
    begin, size = c * CHUNK.value, k.size(chunks.shape[0])
    bound: Number = c * 0
    step = CHUNK.value
    while step:
        next_one = bound + step
        place = begin + next_one - 1
        inside = (next_one <= CHUNK.value) & k.less(place, size)
        value = chunks.at(place, where=inside, other=0)
        bound = k.where(inside & holds(value), next_one, bound)
        step //= 2
    return bound


def summed(
    k: KernelBuilder, values: DeviceOperand, rows: DeviceOperand
) -> tuple[Merged, DeviceOperand]:
    """Emit kernels for the sum of equal rows, [count, width], at the first of them; 0 elsewhere."""
    groups = merged(k, rows)
    count, width = rows.type.numel, product(values.shape[1:])
    totals = k.scratch((count, width), values.type.dtype)
    n, j = k.grid(count, width)
    k.store(totals, (n, j), groups.sums(k, values, n, j))
    return groups, totals


def places(k: KernelBuilder, rows: DeviceOperand, found: Merged) -> DeviceOperand:
    """Return the rank of each row index among the distinct ones, for which a kernel is emitted."""
    if found.place is not None:
        return found.place
    count = rows.type.numel
    rank = k.scratch((count,), DType.INT32)
    (n,) = k.grid(count)
    r = k.loop(count)
    indices = rows.reshaped((count,))
    below = k.less(indices[r], indices[n]) & k.greater(found.length[r], 0)
    k.store(rank, (n,), k.sum(k.astype(below, DType.INT32), r))
    return rank
