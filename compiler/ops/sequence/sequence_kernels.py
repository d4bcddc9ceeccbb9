"""Kernels over sequences: the sequence of each row, and reductions over the rows of each.

LoD offsets are on the host. Kernels get them copied to the device, as they are or as the row
indices derived from them.
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
from compiler.ir.types import Array, Shape
from compiler.ops.sequence.offsets import owners, row_bounds


def table_of(X: DeviceOperand) -> tuple[Size, Size]:
    """The number of rows, and of elements per row."""
    return X.shape[0], product(X.shape[1:])


def longest(offsets: Array) -> int:
    """The length of the longest sequence, 0 if there is none.

    >>> import numpy as np
    >>> longest(np.array([0, 2, 2, 5]))
    3
    """
    return int((offsets[1:] - offsets[:-1]).max(initial=0))


def lod_on_device(k: KernelBuilder, level: Operand, rows: Size) -> DeviceOperand:
    """Copy a LoD level over `rows` to the device: int64 [count + 1]."""
    return k.to_device(level, level.shape, below=rows + 1)


def longest_size(k: KernelBuilder, level: Operand) -> Size:
    """The length of the longest sequence as a size, the trip count of a loop over rows."""
    return k.as_size(k.on_host(longest, level), "longest")


def owner_rows(k: KernelBuilder, level: Operand | HostValue, rows: Size) -> DeviceOperand:
    """The sequence index of each row, on the device: int64 [rows]."""
    return k.to_device(k.on_host(owners, level), (rows,), below=_sequences(level))


def bounds(offsets: DeviceOperand, i: Number) -> tuple[Number, Number]:
    """The begin and end of a sequence."""
    return offsets[i], offsets[i + 1]


def rows_bounds(k: KernelBuilder, level: Operand | HostValue, rows: Size) -> DeviceOperand:
    """For each row the begin and end of its sequence, on the device: int64 [2, rows]."""
    ends = rows + 1 if _sequences(level) is not None else None
    return k.to_device(k.on_host(row_bounds, level), (2, rows), below=ends)


def _sequences(level: Operand | HostValue) -> Size | None:
    """The number of sequences of offsets; None for what the host computes from other numbers."""
    shape: Shape | None = getattr(level, "shape", None)
    return None if shape is None else shape[0] - 1


def move_rows(
    k: KernelBuilder, X: DeviceOperand, indices: DeviceOperand, out: DeviceOperand
) -> None:
    """Emit a kernel for out[indices[i]] = X[i]; indices are distinct."""
    i, j = k.grid(*table_of(X))
    k.store(out.reshaped(table_of(out)), (indices[i], j), X.reshaped(table_of(X))[i, j])


def softmax_rows(k: KernelBuilder, X: DeviceOperand, level: Operand, Out: DeviceOperand) -> None:
    """Emit kernels for softmax over the rows of each sequence, one element per row."""
    rows, count = X.type.numel, level.shape[0] - 1
    offsets, size = lod_on_device(k, level, X.shape[0]), longest_size(k, level)
    (i,) = k.grid(count)
    start, end = bounds(offsets, i)
    r = k.loop(size)
    mine = r < end - start
    value = X.reshaped((rows,)).at(start + r, where=mine, other=float("-inf"))
    most = k.max(value, r)
    powers = k.where(mine, k.exp(value - most), 0)
    k.store(Out.reshaped((rows,)), (start + r,), powers / k.sum(powers, r), mine)


def softmax_rows_grad(
    k: KernelBuilder, Out: DeviceOperand, d_Out: DeviceOperand, level: Operand, d_X: DeviceOperand
) -> None:
    """Emit kernels for the gradient of that softmax."""
    rows, count = Out.type.numel, level.shape[0] - 1
    offsets, size = lod_on_device(k, level, rows), longest_size(k, level)
    (i,) = k.grid(count)
    start, end = bounds(offsets, i)
    r = k.loop(size)
    mine = r < end - start
    out, above = (
        operand.reshaped((rows,)).at(start + r, where=mine, other=0) for operand in (Out, d_Out)
    )
    share = k.sum(out * above, r)
    k.store(d_X.reshaped((rows,)), (start + r,), out * (above - share), mine)
