"""Kernels over sequences: which of them a row belongs to, and sums over the rows of each."""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.kernel import DeviceOperand, Lanes, Number
from compiler.ir.types import DType


def table_of(X: DeviceOperand) -> tuple[Size, Size]:
    """A shape as rows and the numbers in one."""
    return X.shape[0], product(X.shape[1:])


def owner_rows(k: Lanes, offsets: DeviceOperand, rows: Size) -> DeviceOperand:
    """A kernel for the number of the sequence that each row belongs to: int32 [rows]."""
    owners = k.scratch((rows,), DType.INT32)
    (i,) = k.lanes(rows)
    r = k.loop(offsets.shape[0] - 1)
    begun = k.astype(k.less_equal(offsets[r], i), DType.INT32)
    k.store(owners, (i,), k.sum(begun, r) - 1)
    return owners


def bounds(offsets: DeviceOperand, i: Number) -> tuple[Number, Number]:
    """Where a sequence begins and ends."""
    return offsets[i], offsets[i + 1]


def softmax_rows(k: Lanes, X: DeviceOperand, offsets: DeviceOperand, Out: DeviceOperand) -> None:
    """Kernels for softmax over the rows of each sequence, one number a row."""
    rows, count = X.type.numel, offsets.shape[0] - 1
    (i,) = k.lanes(count)
    start, end = bounds(offsets, i)
    r = k.loop(rows)
    mine = (r >= start) & (r < end)
    value = X.seen_as((rows,)).at(r, where=mine, other=float("-inf"))
    most = k.max(value, r)
    powers = k.where(mine, k.exp(value - most), 0)
    k.store(Out.seen_as((rows,)), (r,), powers / k.sum(powers, r), mine)


def softmax_rows_grad(
    k: Lanes, Out: DeviceOperand, d_Out: DeviceOperand, offsets: DeviceOperand, d_X: DeviceOperand
) -> None:
    """Kernels for its gradient."""
    rows, count = Out.type.numel, offsets.shape[0] - 1
    (i,) = k.lanes(count)
    start, end = bounds(offsets, i)
    r = k.loop(rows)
    mine = (r >= start) & (r < end)
    out, above = (each.seen_as((rows,)).at(r, where=mine, other=0) for each in (Out, d_Out))
    share = k.sum(out * above, r)
    k.store(d_X.seen_as((rows,)), (r,), out * (above - share), mine)
