"""Kernels over sequences: which of them a row belongs to, and sums over the rows of each.

The host has the offsets of sequences. What kernels need of them is sent to the device, as they are
or as the row numbers that follow from them.
"""

from __future__ import annotations

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    HostValue,
    KernelBuilder,
    Number,
    Operand,
)
from compiler.ir.types import Array
from compiler.ops.sequence.sequence import owners, row_bounds


def table_of(X: DeviceOperand) -> tuple[Size, Size]:
    """A shape as rows and the numbers in one."""
    return X.shape[0], product(X.shape[1:])


def longest(offsets: Array) -> int:
    """The length of the longest sequence, 0 if there is none.

    >>> import numpy as np
    >>> longest(np.array([0, 2, 2, 5]))
    3
    """
    return int((offsets[1:] - offsets[:-1]).max(initial=0))


def level_there(k: KernelBuilder, level: Operand) -> DeviceOperand:
    """A LoD level on the device: int64 [count + 1]."""
    return k.to_device(level, level.shape)


def turns_of(k: KernelBuilder, level: Operand) -> Size:
    """The length of the longest sequence as a size, over which a loop runs."""
    return k.as_size(k.on_host(longest, level), "longest")


def owner_rows(k: KernelBuilder, level: Operand | HostValue, rows: Size) -> DeviceOperand:
    """The number of the sequence that each row belongs to: int64 [rows]."""
    return k.to_device(k.on_host(owners, level), (rows,))


def bounds(offsets: DeviceOperand, i: Number) -> tuple[Number, Number]:
    """Where a sequence begins and ends."""
    return offsets[i], offsets[i + 1]


def rows_bounds(k: KernelBuilder, level: Operand | HostValue, rows: Size) -> DeviceOperand:
    """For each row where its sequence begins and where it ends: int64 [2, rows]."""
    return k.to_device(k.on_host(row_bounds, level), (2, rows))


def move_rows(
    k: KernelBuilder, X: DeviceOperand, places: DeviceOperand, out: DeviceOperand
) -> None:
    """A kernel for out[place] = row of X; no two rows have one place."""
    i, j = k.grid(*table_of(X))
    k.store(out.reshaped(table_of(out)), (places[i], j), X.reshaped(table_of(X))[i, j])


def softmax_rows(k: KernelBuilder, X: DeviceOperand, level: Operand, Out: DeviceOperand) -> None:
    """Kernels for softmax over the rows of each sequence, one number a row."""
    rows, count = X.type.numel, level.shape[0] - 1
    offsets, turns = level_there(k, level), turns_of(k, level)
    (i,) = k.grid(count)
    start, end = bounds(offsets, i)
    r = k.loop(turns)
    mine = r < end - start
    value = X.reshaped((rows,)).at(start + r, where=mine, other=float("-inf"))
    most = k.max(value, r)
    powers = k.where(mine, k.exp(value - most), 0)
    k.store(Out.reshaped((rows,)), (start + r,), powers / k.sum(powers, r), mine)


def softmax_rows_grad(
    k: KernelBuilder, Out: DeviceOperand, d_Out: DeviceOperand, level: Operand, d_X: DeviceOperand
) -> None:
    """Kernels for its gradient."""
    rows, count = Out.type.numel, level.shape[0] - 1
    offsets, turns = level_there(k, level), turns_of(k, level)
    (i,) = k.grid(count)
    start, end = bounds(offsets, i)
    r = k.loop(turns)
    mine = r < end - start
    out, above = (
        each.reshaped((rows,)).at(start + r, where=mine, other=0) for each in (Out, d_Out)
    )
    share = k.sum(out * above, r)
    k.store(d_X.reshaped((rows,)), (start + r,), out * (above - share), mine)
