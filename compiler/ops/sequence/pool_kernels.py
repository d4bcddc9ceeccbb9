"""Kernels of sequence pooling and its gradient."""

from __future__ import annotations

from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number, Operand
from compiler.ir.types import DType
from compiler.ops.sequence.sequence_kernels import (
    bounds,
    lod_on_device,
    longest_size,
    owner_rows,
    table_of,
)


def weight(k: KernelBuilder, length: Number, kind: str, dtype: DType) -> Number:
    """The divisor of the sum over a sequence."""
    longer = k.astype(k.maximum(length, 1), dtype)
    return longer if kind == "AVERAGE" else k.sqrt(longer)


def pooled(
    k: KernelBuilder, X: DeviceOperand, level: Operand, kind: str, empty: float,
    Out: DeviceOperand | None, MaxIndex: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit a kernel for one row per sequence, and the rows of the maxima."""
    rows, width = table_of(X)
    offsets, longest = lod_on_device(k, level, rows), longest_size(k, level)
    count = level.shape[0] - 1
    i, j = k.grid(count, width)
    start, end = bounds(offsets, i)
    x, filled = X.reshaped((rows, width)), end > start
    place: Number = -1
    if kind in ("FIRST", "LAST"):
        result = x.at(start if kind == "FIRST" else end - 1, j, where=filled, other=empty)
    else:
        r = k.loop(longest)
        mine = r < end - start
        value = x.at(start + r, j, where=mine, other=float("-inf") if kind == "MAX" else 0)
        result = k.max(value, r) if kind == "MAX" else k.sum(value, r)
        if kind == "MAX":
            position = k.where(mine & k.equal(value, result), start + r, k.size(rows) - 1)
            position = k.min(k.astype(position, DType.INT32), r)
            place = k.where(filled, position, -1)
        if kind in ("AVERAGE", "SQRT"):
            result = result / weight(k, end - start, kind, X.type.dtype)
        result = k.where(filled, result, empty)
    if Out is not None:
        k.store(Out.reshaped((count, width)), (i, j), result)
    if MaxIndex is not None:
        k.store(MaxIndex.reshaped((count, width)), (i, j), place)


def pooled_grad(
    k: KernelBuilder, level: Operand, kind: str, MaxIndex: DeviceOperand | None,
    d_Out: DeviceOperand, d_X: DeviceOperand,
) -> None:  # fmt: skip
    """Emit a kernel for each row's share of its sequence's gradient."""
    rows, width = table_of(d_X)
    count = level.shape[0] - 1
    owners, offsets = owner_rows(k, level, rows), lod_on_device(k, level, rows)
    i, j = k.grid(rows, width)
    owner = owners[i]
    start, end = bounds(offsets, owner)
    above = d_Out.reshaped((count, width))[owner, j]
    if kind == "MAX" and MaxIndex is not None:
        above = k.where(k.equal(MaxIndex.reshaped((count, width))[owner, j], i), above, 0)
    elif kind in ("FIRST", "LAST"):
        above = k.where(k.equal(i, start if kind == "FIRST" else end - 1), above, 0)
    elif kind in ("AVERAGE", "SQRT"):
        above = above / weight(k, end - start, kind, d_X.type.dtype)
    k.store(d_X.reshaped((rows, width)), (i, j), above)
