"""Kernels that concatenate tensors along an axis, and that split one.

A *run* of a part is what is contiguous in the whole: the part's elements along the axis and the
axes after it. Parts are copied by a kernel each if their runs are whole sectors of memory. Else
neighbours share sectors: on a GPU, one kernel then writes all elements of a row of the whole in
order, or reads it while the sectors are in the cache of a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ops.shared_kernels import split_at, window
from compiler.support.thresholds import threshold

SECTOR = 32
"""Bytes that a GPU moves at least."""

MOST_PARTS = threshold(
    "joined_parts", 8, "tensors", "a kernel on a GPU joins or splits at most so many", small=2
)
BLOCK = threshold(
    "split_block", 1024, "elements",
    "rows with more, in whole sectors of memory, are split by a kernel for each part", small=64,
)  # fmt: skip


def concat_parts(
    k: KernelBuilder, parts: list[DeviceOperand], Out: DeviceOperand, axis: int
) -> None:
    """Emit kernels that concatenate tensors into Out along an axis."""
    for starts, group in _groups(k, parts, axis):
        if len(group) > 1:
            _join_rows(k, group, Out, axis, starts)
            continue
        (part,) = group
        indices = k.grid(*part.shape)
        moved = [_shifted(k, i, starts[0]) if a == axis else i for a, i in enumerate(indices)]
        k.store(Out, moved, part[indices])


def split_parts(k: KernelBuilder, X: DeviceOperand, parts: list[DeviceOperand], axis: int) -> None:
    """Emit kernels that split X into tensors along an axis."""
    for starts, group in _groups(k, parts, axis):
        if len(group) > 1 and _rows_in_block(group, axis):
            _split_rows(k, X, group, axis, starts)
            continue
        for start, part in zip(starts, group, strict=True):
            window(k, X, part, [start if a == axis else 0 for a in range(X.type.rank)])


def _groups(
    k: KernelBuilder, parts: Sequence[DeviceOperand], axis: int
) -> Iterator[tuple[list[Size], list[DeviceOperand]]]:
    """The parts of each kernel, with where they start along the axis."""
    starts: list[Size] = [*accumulate((part.shape[axis] for part in parts), initial=0)]
    most = MOST_PARTS.value if k.on_gpu and _share_sectors(parts, axis) else 1
    for first in range(0, len(parts), most):
        group = parts[first : first + most]
        yield starts[first : first + len(group)], list(group)


def _share_sectors(parts: Sequence[DeviceOperand], axis: int) -> bool:
    """True if known runs of several rows begin or end within sectors."""
    runs = [_run(part, axis) for part in parts]
    several = split_at(parts[0].shape, axis)[0] != 1
    return several and all(runs) and any(run * _width(parts[0]) % SECTOR for run in runs)


def _run(part: DeviceOperand, axis: int) -> int:
    """The elements of a run; 0 if they are not known."""
    _, size, inner = split_at(part.shape, axis)
    return size * inner if isinstance(size, int) and isinstance(inner, int) else 0


def _width(part: DeviceOperand) -> int:
    return part.type.dtype.itemsize


def _shifted(k: KernelBuilder, index: Number, by: Size) -> Number:
    return index if isinstance(by, int) and by == 0 else index + k.size(by)


def _join_rows(
    k: KernelBuilder,
    parts: Sequence[DeviceOperand],
    Out: DeviceOperand,
    axis: int,
    starts: Sequence[Size],
) -> None:
    """Emit a kernel over the elements of rows of Out, each of which loads from its part."""
    outer, size, inner = split_at(Out.shape, axis)
    bounds = [*accumulate((_run(part, axis) for part in parts), initial=0)]
    row, column = k.grid(outer, bounds[-1])
    value = None
    for part, (first, stop) in reversed([*zip(parts, pairwise(bounds), strict=True)]):
        rows = part.reshaped((outer, stop - first))
        own = (column >= first) & (column < stop)
        loaded = rows.at(row, column - first, where=own)
        value = loaded if value is None else k.where(own, loaded, value)
    place = _shifted(k, column, starts[0] * inner)
    k.store(Out.reshaped((outer, size * inner)), (row, place), value)


def _rows_in_block(parts: Sequence[DeviceOperand], axis: int) -> int:
    """Rows whose runs are whole sectors in each part; 0 if they are more than a block."""
    rows = SECTOR // _width(parts[0])
    return rows if rows * max(_run(part, axis) for part in parts) <= BLOCK.value else 0


def _split_rows(
    k: KernelBuilder,
    X: DeviceOperand,
    parts: Sequence[DeviceOperand],
    axis: int,
    starts: Sequence[Size],
) -> None:
    """Emit a kernel over blocks of rows of X, whose elements store one element of each part."""
    outer, size, inner = split_at(X.shape, axis)
    rows, runs = _rows_in_block(parts, axis), [_run(part, axis) for part in parts]
    block, place = k.grid((outer + rows - 1) // rows, rows * max(runs))
    whole = X.reshaped((outer, size * inner))
    for part, run, start in zip(parts, runs, starts, strict=True):
        at = block * (rows * run) + place
        own = (place < rows * run) & (at < k.size(outer * run))
        column = _shifted(k, k.mod(at, run), start * inner)
        value = whole.at(k.div(at, run), column, where=own)
        k.store(part.reshaped((outer * run,)), (at,), value, own)
