"""Kernels for sparse rows whose numbers repeat: which rows belong together, and their sums.

Rows of one number are found by counting, for each, how many come before it in order of numbers;
the sum of those that belong together is made by the first of them, in the order in which they
stand, and so is the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType


@dataclass(frozen=True)
class Merged:
    """Rows by their numbers.

    `order` [count] has the places of rows, those of one number side by side; `first` is where in it
    the rows of a number begin, `length` how many there are: 0 for all but the first of them, and
    for numbers that are none of the table's.
    """

    order: DeviceOperand
    first: DeviceOperand
    length: DeviceOperand

    def sums(self, k: KernelBuilder, values: DeviceOperand, n: Number, j: Number) -> Number:
        """The sum of column j over all rows that have the number of row n."""
        count = self.order.shape[0]
        return self.sum_of(k, values.reshaped((1, count, product(values.shape[1:]))), n, 0, j)

    def sum_of(
        self, k: KernelBuilder, values: DeviceOperand, n: Number, i: Number, j: Number
    ) -> Number:
        """The same of values that have their rows along the middle one of three axes."""
        r = k.loop(self.order.shape[0], self.length[n])
        mine = r < self.length[n]
        place = self.order.at(self.first[n] + r, where=mine, other=0)
        return k.sum(values.at(i, place, j, where=mine, other=0), r)


def merged(k: KernelBuilder, rows: DeviceOperand, height: Size | None = None) -> Merged:
    """A kernel that finds which rows belong together; with `height`, of numbers below it."""
    count = rows.type.numel
    found = Merged(*(k.scratch((count,), DType.INT32) for _ in range(3)))
    (n,) = k.grid(count)
    r = k.loop(count)
    numbers = rows.reshaped((count,))
    mine, other = numbers[n], numbers[r]
    same = k.equal(other, mine)
    before = same & k.less(r, n)
    rank, length, ahead = (
        k.sum(k.astype(each, DType.INT32), r)
        for each in (k.less(other, mine) | before, same, before)
    )
    leads = k.equal(ahead, 0)
    if height is not None:
        leads = leads & (mine >= 0) & (mine < k.size(height))
    k.store(found.order, (rank,), n)
    k.store(found.first, (n,), rank)
    k.store(found.length, (n,), k.where(leads, length, 0))
    return found


def summed(
    k: KernelBuilder, values: DeviceOperand, rows: DeviceOperand
) -> tuple[Merged, DeviceOperand]:
    """Kernels for the sum of each number, [count, width], where it comes first; 0 elsewhere."""
    found = merged(k, rows)
    count, width = rows.type.numel, product(values.shape[1:])
    totals = k.scratch((count, width), values.type.dtype)
    n, j = k.grid(count, width)
    k.store(totals, (n, j), found.sums(k, values, n, j))
    return found, totals


def places(k: KernelBuilder, rows: DeviceOperand, found: Merged) -> DeviceOperand:
    """A kernel for the place of each number among all numbers, each counted once."""
    count = rows.type.numel
    place = k.scratch((count,), DType.INT32)
    (n,) = k.grid(count)
    r = k.loop(count)
    numbers = rows.reshaped((count,))
    below = k.less(numbers[r], numbers[n]) & k.greater(found.length[r], 0)
    k.store(place, (n,), k.sum(k.astype(below, DType.INT32), r))
    return place
