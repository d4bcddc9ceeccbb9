"""Commands that are repeated with other arguments each time, such as the steps of a recurrence.

    begin, count = native.columns(rows, 2)
    native.repeat(begin.size, [
        ("product", (native.at(x, 256*begin), native.at(w), native.at(h), count), count, 512*count),
        ("cell", (native.at(h), native.at(out, 256*begin), count), (count + 31)//32, 256*count),
    ])

An argument is a number, or an array with one for each time; so are the units and the work of a
command. The records of all times are computed at once, and run by one call of the executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.ir.types import Array
from runtime.native.addresses import address
from runtime.native.executor import COMMAND_WORDS, SEQUENCE_WORDS
from runtime.native.sharing import share
from runtime.native.threads import pool

Numbers: TypeAlias = "Array | int"
"""A number, or an int64 array with one for each time."""
Repeated: TypeAlias = tuple[str, Sequence[Numbers], Numbers, Numbers]
"""A kernel's name, its arguments, its units and its work: flops plus bytes."""


def at(array: Array, offset: Numbers = 0) -> Numbers:
    """The addresses of the elements of a C-contiguous array at offsets, counted in elements."""
    return address(array) + array.itemsize * offset


def columns(rows: Any, count: int) -> Array:
    """The columns of rows of `count` integers each, or of integers: int64 [count, rows].

    >>> columns([(1, 2), (3, 4), (5, 6)], 2).tolist()
    [[1, 3, 5], [2, 4, 6]]
    """
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, count).T)


def indices(value: Any, dtype: str, low: int, below: int) -> Array:
    """A contiguous array of indices that the host computes, from `low` up to `below`.

    Raises ValueError for others.

    >>> indices([2, 0, 1], "int64", 0, 3)
    array([2, 0, 1])
    >>> indices([2, 3], "int64", 0, 3)
    Traceback (most recent call last):
        ...
    ValueError: an index computed for a kernel is 3, expected 0 to 2
    """
    converted = np.ascontiguousarray(value, dtype)
    if converted.size and not (converted.min() >= low and converted.max() < below):
        wrong = converted[(converted < low) | (converted >= below)].flat[0]
        raise ValueError(
            f"an index computed for a kernel is {wrong}, expected {low} to {below - 1}"
        )
    return converted


def offsets(value: Any, dtype: str, below: int) -> Array:
    """A contiguous array of valid offsets, the last and largest of which is less than `below`.

    Raises ValueError for others.

    >>> offsets([0, 2, 3], "int64", 4)
    array([0, 2, 3])
    >>> offsets([0, 2, 4], "int64", 4)
    Traceback (most recent call last):
        ...
    ValueError: offsets end at 4, expected at most 3, the number of rows
    """
    converted = np.ascontiguousarray(value, dtype)
    if converted.size and converted[-1] >= below:
        raise ValueError(
            f"offsets end at {converted[-1]}, expected at most {below - 1}, the number of rows"
        )
    return converted


def expect_at_most(sizes: Numbers, limits: Numbers) -> None:
    """Raise ValueError if a size is more than its limit, so that a kernel would access more.

    >>> expect_at_most(np.array([3, 5]), 5)
    >>> expect_at_most(np.array([3, 5]), np.array([3, 4]))
    Traceback (most recent call last):
        ...
    ValueError: a step of the host has 5 rows, expected at most 4
    """
    if not np.all(sizes <= limits):
        size, limit = next(
            (size, limit)
            for size, limit in np.broadcast(np.atleast_1d(sizes), limits)
            if size > limit
        )
        raise ValueError(f"a step of the host has {size} rows, expected at most {limit}")


def most(sizes: Numbers) -> int:
    """The largest of some sizes; 0 of none.

    >>> most(np.array([3, 5, 4])), most(np.array([], int)), most(7)
    (5, 0, 7)
    """
    return int(np.max(sizes, initial=0))


def repeated_record(
    addresses: Mapping[str, int], count: int, commands: Sequence[Repeated], threads: int
) -> tuple[int, object]:
    """The record of a sequence with the commands of all times, and what holds its memory.

    Commands without units are left out.
    """
    starts = np.cumsum([0, *(max(1, len(arguments)) for _, arguments, *_ in commands)])
    slots = np.empty((count, int(starts[-1])), np.int64)
    words = np.empty((count, len(commands), COMMAND_WORDS), np.int64)
    work = np.empty((count, len(commands)), np.int64)
    rows = slots.ctypes.data + slots.strides[0] * np.arange(count)
    for place, (kernel, arguments, units, cost) in enumerate(commands):
        start = int(starts[place])
        for column, argument in enumerate(arguments, start):
            slots[:, column] = argument
        words[:, place, 0], words[:, place, 1] = addresses[kernel], rows + 8 * start
        words[:, place, 2], work[:, place] = units, cost
    is_used = words[:, :, 2] > 0
    listed = words[is_used]
    listed[:, 3] = share(listed[:, 2], work[is_used]) if threads > 1 else 0
    shares = bool(listed[:, 3].any())
    record = np.array([listed.ctypes.data, len(listed), threads if shares else 1, 0, 0], np.int64)
    assert len(record) == SEQUENCE_WORDS
    record[3] = pool().address if shares else 0
    return record.ctypes.data, (slots, listed, record)
