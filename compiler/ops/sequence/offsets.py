"""Shared code of sequence ops: which rows of a tensor belong to which sequence.

Sequences of several lengths are packed in a tensor; `offsets`, int64 [count + 1], has the begin of
each and the end of the last. Sequences may be empty. The array functions are copied into generated
modules, and use nothing but their arguments and `np`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import differ
from compiler.support.free_memory import expect_memory


def offsets_of(count: Size) -> TensorType:
    """The type of one LoD level of `count` sequences."""
    return TensorType(DType.INT64, (count + 1,))


def count_of(offsets: TensorType) -> Size:
    """The number of sequences of a LoD level."""
    return offsets.shape[0] - 1


def require_one_level(op: str, slot: str, lod: Sequence[TensorType]) -> None:
    """Raise ShapeError for a LoD of several levels, which the reference's kernels reject."""
    if len(lod) != 1:
        raise ShapeError(
            f"{op}: {slot} has {len(lod)} LoD levels, expected 1",
            hint="sequence_pool makes one level of two, lod_reset sets another",
        )


def require_rank(op: str, slot: str, type: TensorType, least: int) -> None:
    """Raise ShapeError unless an input has at least `least` axes."""
    if type.rank < least:
        raise ShapeError(f"{op}: {slot} is {type}, expected {least} axes or more")


def require_column(op: str, type: TensorType) -> None:
    """Raise ShapeError unless X has one element per row."""
    if type.rank != 2 or differ(type.shape[1], 1):
        raise ShapeError(f"{op}: X is {type}, expected [rows, 1]")


def lod_expression(k: SourceBuilder, expression: str, offsets: Operand, hint: str) -> str:
    """An expression over a LoD level, evaluated once a step if the level is a feed.

    A level written by an op keeps its address, so `at_bind` would not evaluate it again.
    """
    steady = getattr(offsets, "steady", True)
    return expression if steady else k.at_bind(expression, [offsets], hint)


def offsets_after(lengths: Array) -> Array:
    """The offsets of sequences with these lengths: int64 [count + 1].

    >>> print(offsets_after(np.array([[2], [0], [3]])))
    [0 2 2 5]
    """
    return np.append(0, np.cumsum(lengths.reshape(-1))).astype(np.int64)


def even_offsets(count: int, length: int) -> Array:
    """The offsets of sequences of equal length: int64 [count + 1]."""
    return np.arange(count + 1) * length


def row_bounds(offsets: Array) -> Array:
    """For each row the begin and end of its sequence: int64 [2, rows].

    >>> print(row_bounds(np.array([0, 2, 2, 5])).tolist())
    [[0, 0, 2, 2, 2], [2, 2, 5, 5, 5]]
    """
    lengths = offsets[1:] - offsets[:-1]
    return np.array([offsets[:-1], offsets[1:]]).repeat(lengths, axis=1)


def run_rows(starts: Array, lengths: Array) -> Array:
    """The row indices of consecutive runs: int64 [sum(lengths)].

    >>> print(run_rows(np.array([5, 0, 2]), np.array([2, 0, 3])))
    [5 6 2 3 4]
    """
    expect_memory((lengths.sum(),), 24)
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def reversed_rows(offsets: Array) -> Array:
    """The row indices that reverse each sequence: int64 [rows].

    >>> print(reversed_rows(np.array([0, 2, 2, 5])))
    [1 0 4 3 2]
    """
    rows: Array = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    rows -= np.arange(len(rows))
    return rows


def owners(offsets: Array) -> Array:
    """The sequence index of each row.

    >>> print(owners(np.array([0, 2, 2, 5])))
    [0 0 2 2 2]
    """
    return np.arange(len(offsets) - 1).repeat(offsets[1:] - offsets[:-1])


def row_places(offsets: Array) -> tuple[Array, Array]:
    """For each row its position in its sequence, and the sequence's length: int64 [rows] each.

    >>> print(*row_places(np.array([0, 2, 2, 5])))
    [0 1 0 1 2] [2 2 3 3 3]
    """
    lengths = offsets[1:] - offsets[:-1]
    starts = offsets[:-1].repeat(lengths)
    return np.arange(len(starts)) - starts, lengths.repeat(lengths)


def segments(offsets: Array) -> tuple[Any, Array, Array]:
    """The non-empty sequences (a slice if all are), their first rows, and their lengths."""
    lengths = offsets[1:] - offsets[:-1]
    if lengths.all():
        return slice(None), offsets[:-1], lengths
    filled = lengths.nonzero()[0]
    return filled, offsets[filled], lengths[filled]


def segment_sums(values: Array, offsets: Array) -> Array:
    """The sum of each sequence's rows, 0 for an empty one: [count, …].

    >>> print(segment_sums(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 1, 3])))
    [1. 0. 6.]
    """
    filled, starts, _ = segments(offsets)
    sums = np.zeros((len(offsets) - 1, *values.shape[1:]), values.dtype)
    sums[filled] = np.add.reduceat(values, starts, axis=0)
    return sums


def window_index(places: tuple[Array, Array], start: int, length: int) -> Array:
    """The rows of the window `start … start + length - 1` around each row: [rows, length].

    `places` are those of `row_places`. Positions outside of the sequence have the number of rows as
    their index.

    >>> print(window_index(row_places(np.array([0, 2, 3])), -1, 3).tolist())
    [[3, 0, 1], [0, 1, 3], [3, 2, 3]]
    """
    positions, lengths = places
    steps, count = np.arange(start, start + length), len(positions)
    seen = np.add.outer(positions, steps)
    inside = seen.view(np.uint64) < lengths.view(np.uint64)[:, None]
    return np.where(inside, np.add.outer(np.arange(count), steps), count)


def window_values(values: Array, offsets: Array, start: int, length: int, border: float) -> Array:
    """The values in each row's window, `border` outside of its sequence: [rows, length, …]."""
    beyond = np.full((1, *values.shape[1:]), border, values.dtype)
    index = window_index(row_places(offsets), start, length)
    return np.concatenate([values, beyond]).take(index, axis=0)


def zeros(shape: Any, like: Array) -> Array:
    """Zeros of a shape, with the element type of `like`."""
    sizes: tuple[int, ...] = shape
    return np.zeros(sizes, like.dtype)


def reshaped(values: Array, shape: Any) -> Array:
    """The same elements in another shape."""
    return values.reshape(shape)
