"""Selecting and concatenating entries of LoD tensors: sequences, or rows if there is no LoD.

An entry is an item of the outermost level; without LoD it is a row. Functions here are copied into
generated modules individually, so they use NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array


def picked(levels: Sequence[Array], entries: Array) -> tuple[list[Array], Array]:
    """The LoD of the selected entries, in their order, and the rows they contain.

    >>> levels, rows = picked([np.array([0, 2, 5])], np.array([1, 0]))
    >>> levels[0].tolist(), rows.tolist()
    ([0, 3, 5], [2, 3, 4, 0, 1])
    """
    selected_levels: list[Array] = []
    rows: Array = entries.astype(np.int64)
    for offsets in levels:
        lengths = np.diff(offsets)[rows]
        ends = starts_of(lengths)
        rows = np.repeat(offsets[:-1][rows] - ends[:-1], lengths) + np.arange(int(ends[-1]))
        selected_levels.append(ends)
    return selected_levels, rows


def behind(first: Sequence[Array], second: Sequence[Array]) -> list[Array]:
    """The LoD of two concatenated tensors.

    >>> behind([np.array([0, 2])], [np.array([0, 1, 4])])[0].tolist()
    [0, 2, 3, 6]
    """
    pairs = zip(first, second, strict=True)
    return [np.concatenate([mine, theirs[1:] + mine[-1]]) for mine, theirs in pairs]


def starts_of(lengths: Any) -> Array:
    """The offsets of entries with these lengths.

    >>> starts_of([2, 3]).tolist()
    [0, 2, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])
