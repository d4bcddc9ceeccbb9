"""Kernels for sparse gradients with repeated rows: which rows are equal, and their sums.

Rows are sorted by counting, for each, the rows before it in order of index; the sum of equal rows
is computed by the first of them, in their order, and so is deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType


@dataclass(frozen=True)
class Merged:
    """Rows grouped by index.

    `order` [count] has the positions of rows, equal ones adjacent; `first` is the begin of a row's
    group in it, `length` its size: 0 for all but the first row of a group, and for indices out of
    range.
    """

    order: DeviceOperand
    first: DeviceOperand
    length: DeviceOperand

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
    found = Merged(*(k.scratch((count,), DType.INT32) for _ in range(3)))
    (n,) = k.grid(count)
    r = k.loop(count)
    indices = rows.reshaped((count,))
    mine, other = indices[n], indices[r]
    same = k.equal(other, mine)
    before = same & k.less(r, n)
    position, length, ahead = (
        k.sum(k.astype(each, DType.INT32), r)
        for each in (k.less(other, mine) | before, same, before)
    )
    leads = k.equal(ahead, 0)
    if height is not None:
        leads = leads & (mine >= 0) & (mine < k.size(height))
    k.store(found.order, (position,), n)
    k.store(found.first, (n,), position)
    k.store(found.length, (n,), k.where(leads, length, 0))
    return found


def summed(
    k: KernelBuilder, values: DeviceOperand, rows: DeviceOperand
) -> tuple[Merged, DeviceOperand]:
    """Emit kernels for the sum of equal rows, [count, width], at the first of them; 0 elsewhere."""
    found = merged(k, rows)
    count, width = rows.type.numel, product(values.shape[1:])
    totals = k.scratch((count, width), values.type.dtype)
    n, j = k.grid(count, width)
    k.store(totals, (n, j), found.sums(k, values, n, j))
    return found, totals


def places(k: KernelBuilder, rows: DeviceOperand, found: Merged) -> DeviceOperand:
    """Emit a kernel for the rank of each row index among the distinct ones."""
    count = rows.type.numel
    rank = k.scratch((count,), DType.INT32)
    (n,) = k.grid(count)
    r = k.loop(count)
    indices = rows.reshaped((count,))
    below = k.less(indices[r], indices[n]) & k.greater(found.length[r], 0)
    k.store(rank, (n,), k.sum(k.astype(below, DType.INT32), r))
    return rank
