"""Sparse gradients on the wire: row numbers and values, in parts that fit a message.

The data of a part are its number and the number of parts (uint32 each), the count of its rows
(uint64), row numbers (int64 [count]) and values ([count, width]).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.wire.frames import Kind, new_frame
from runtime.ps.wire.layout import CHUNK_BYTES

_PART = struct.Struct("<IIQ")
_PACKED_BITS = 24
"""Bits for the position of a row, when row number and position are sorted as one integer."""


def merge_rows(rows: Array, values: Array) -> tuple[Array, Array]:
    """Sum the values of equal row numbers; rows are sorted. int64 [n] and [n, width].

    Row numbers and positions are sorted as single integers, which is the fastest sort NumPy has.
    """
    count = len(rows)
    if count < 2 or not (np.diff(rows) <= 0).any():
        return rows, values
    if count >= 1 << _PACKED_BITS or rows.max() >= 1 << (62 - _PACKED_BITS):
        order = np.argsort(rows, kind="stable")
    else:
        order = np.sort((rows << _PACKED_BITS) | np.arange(count)) & ((1 << _PACKED_BITS) - 1)
    ordered = rows[order]
    is_first = np.ones(count, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    first, repeated = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    merged = np.empty((len(first), *values.shape[1:]), values.dtype)
    np.take(values, order[first], axis=0, out=merged, mode="clip")  # much faster than indexing
    np.add.at(merged, np.cumsum(is_first)[repeated] - 1, values[order[repeated]])
    return ordered[first], merged


def row_frames(trainer: int, step: int, slot: int, rows: Array, values: Array) -> Iterator[bytes]:
    """Yield the messages of one sparse gradient; at least one, so that it can be complete."""
    sizes = part_sizes(values.dtype, values.shape, len(rows))
    parts, rows_per_part = len(sizes), _most_rows(values.dtype, values.shape)
    for part, nbytes in enumerate(sizes):
        some = slice(part * rows_per_part, (part + 1) * rows_per_part)
        numbers, data = rows[some], np.ascontiguousarray(values[some])
        message, view = new_frame(Kind.ROWS, trainer, step, slot, nbytes)
        view[: _PART.size] = np.frombuffer(_PART.pack(part, parts, len(numbers)), np.uint8)
        middle = _PART.size + len(numbers) * 8
        view[_PART.size : middle] = np.ascontiguousarray(numbers, np.int64).view(np.uint8)
        view[middle:] = data.reshape(-1).view(np.uint8)
        yield message


def part_sizes(dtype: Any, shape: Sequence[int], count: int) -> list[int]:
    """The bytes of data of each message of a sparse gradient with `count` rows; at least one."""
    most, row = _most_rows(dtype, shape), 8 + _width(dtype, shape)
    counts = [min(most, count - start) for start in range(0, count, most)] or [0]
    return [_PART.size + row_count * row for row_count in counts]


def _most_rows(dtype: Any, shape: Sequence[int]) -> int:
    """The number of rows of a full message."""
    return max(1, CHUNK_BYTES // (8 + _width(dtype, shape)))


def _width(dtype: Any, shape: Sequence[int]) -> int:
    """The bytes of the values of a row."""
    return prod(shape[1:]) * np.dtype(dtype).itemsize


def read_rows(data: Array, dtype: str, shape: Sequence[int]) -> tuple[int, int, Array, Array]:
    """Parse a part: its number, the number of parts, row numbers and values.

    `shape` is that of the whole table. Raises WireError for invalid sizes or row numbers.
    """
    width = _width(dtype, shape)
    if len(data) < _PART.size:
        raise WireError(f"a message of rows has {len(data)} bytes, fewer than its header")
    part, parts, count = _PART.unpack(data[: _PART.size].tobytes())
    if not part < parts or _PART.size + count * (8 + width) != len(data):
        raise WireError(
            f"a message of rows claims part {part} of {parts} with {count} rows, which are not "
            f"its {len(data)} bytes"
        )
    middle = _PART.size + count * 8
    rows = np.frombuffer(data[_PART.size : middle].tobytes(), np.int64)
    if count and not 0 <= rows.min() <= rows.max() < shape[0]:
        raise WireError(
            f"a row is not among the {shape[0]} of the table: {rows.min()}, {rows.max()}"
        )
    values = np.frombuffer(data[middle:].tobytes(), dtype).reshape(count, *shape[1:])
    return part, parts, rows, values
