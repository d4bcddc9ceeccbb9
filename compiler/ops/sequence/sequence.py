"""What ops on sequences share: which rows of a tensor belong to which sequence.

Sequences of several lengths lie one after the other in a tensor; `offsets`, int64 [count + 1], say
where each begins and the last ends. Sequences may be empty. The functions of arrays are carried
into generated modules, and know nothing but their arguments and `np`.
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


def offsets_of(count: Size) -> TensorType:
    """The type of one LoD level of `count` sequences."""
    return TensorType(DType.INT64, (count + 1,))


def count_of(offsets: TensorType) -> Size:
    """How many sequences a LoD level has."""
    return offsets.shape[0] - 1


def require_one_level(op: str, slot: str, lod: Sequence[TensorType]) -> None:
    """ShapeError for a LoD of several levels, which the reference's kernels refuse."""
    if len(lod) != 1:
        raise ShapeError(
            f"{op}: {slot} has {len(lod)} LoD levels, expected 1",
            hint="sequence_pool makes one level of two, lod_reset sets another",
        )


def require_rank(op: str, slot: str, type: TensorType, least: int) -> None:
    """ShapeError unless an input has enough axes."""
    if type.rank < least:
        raise ShapeError(f"{op}: {slot} is {type}, expected {least} axes or more")


def require_column(op: str, type: TensorType) -> None:
    """ShapeError unless X is one number a row."""
    if type.rank != 2 or differ(type.shape[1], 1):
        raise ShapeError(f"{op}: X is {type}, expected [rows, 1]")


def of_lod(k: SourceBuilder, expression: str, offsets: Operand, hint: str) -> str:
    """An expression over a LoD level, worked out once a step where the level is fed.

    A level that an op wrote stays in place, and so `once` would not look at it again.
    """
    steady = getattr(offsets, "steady", True)
    return expression if steady else k.at_bind(expression, [offsets], hint)


def offsets_after(lengths: Array) -> Array:
    """Where sequences of some lengths lie: int64 [count + 1].

    >>> print(offsets_after(np.array([[2], [0], [3]])))
    [0 2 2 5]
    """
    return np.append(0, np.cumsum(lengths.reshape(-1))).astype(np.int64)


def even_offsets(count: int, length: int) -> Array:
    """Where sequences of one length lie: int64 [count + 1]."""
    return np.arange(count + 1) * length


def row_bounds(offsets: Array) -> Array:
    """For each row where its sequence begins and where it ends: int64 [2, rows].

    >>> print(row_bounds(np.array([0, 2, 2, 5])).tolist())
    [[0, 0, 2, 2, 2], [2, 2, 5, 5, 5]]
    """
    lengths = offsets[1:] - offsets[:-1]
    return np.stack([offsets[:-1].repeat(lengths), offsets[1:].repeat(lengths)])


def run_rows(starts: Array, lengths: Array) -> Array:
    """Row numbers of runs, one run after the other: int64 [sum(lengths)].

    >>> print(run_rows(np.array([5, 0, 2]), np.array([2, 0, 3])))
    [5 6 2 3 4]
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def reversed_rows(offsets: Array) -> Array:
    """Row numbers of the same sequences, each backwards: int64 [rows].

    >>> print(reversed_rows(np.array([0, 2, 2, 5])))
    [1 0 4 3 2]
    """
    rows: Array = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    rows -= np.arange(len(rows))
    return rows


def owners(offsets: Array) -> Array:
    """The number of the sequence that each row belongs to.

    >>> print(owners(np.array([0, 2, 2, 5])))
    [0 0 2 2 2]
    """
    return np.arange(len(offsets) - 1).repeat(offsets[1:] - offsets[:-1])


def row_places(offsets: Array) -> tuple[Array, Array]:
    """For each row its place in its sequence, and how long that is: int64 [rows] each.

    >>> print(*row_places(np.array([0, 2, 2, 5])))
    [0 1 0 1 2] [2 2 3 3 3]
    """
    lengths = offsets[1:] - offsets[:-1]
    starts = offsets[:-1].repeat(lengths)
    return np.arange(len(starts)) - starts, lengths.repeat(lengths)


def segments(offsets: Array) -> tuple[Any, Array, Array]:
    """Which sequences have rows (a slice where all do), where these begin, how long they are."""
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

    `places` are those of `row_places`. The number of rows stands for what lies outside of the
    sequence.

    >>> print(window_index(row_places(np.array([0, 2, 3])), -1, 3).tolist())
    [[3, 0, 1], [0, 1, 3], [3, 2, 3]]
    """
    positions, lengths = places
    steps, count = np.arange(start, start + length), len(positions)
    seen = np.add.outer(positions, steps)
    inside = seen.view(np.uint64) < lengths.view(np.uint64)[:, None]
    return np.where(inside, np.add.outer(np.arange(count), steps), count)


def window_values(values: Array, offsets: Array, start: int, length: int, border: float) -> Array:
    """What each row's window sees, `border` outside of its sequence: [rows, length, …]."""
    beyond = np.full((1, *values.shape[1:]), border, values.dtype)
    index = window_index(row_places(offsets), start, length)
    return np.concatenate([values, beyond]).take(index, axis=0)


def zeros(shape: Any, like: Array) -> Array:
    """Zeros in a shape, of the element type of an array."""
    sizes: tuple[int, ...] = shape
    return np.zeros(sizes, like.dtype)


def reshaped(values: Array, shape: Any) -> Array:
    """The same elements in a shape."""
    return values.reshape(shape)
