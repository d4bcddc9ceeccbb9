"""Sequences of uneven lengths side by side: which rows they are made of, given LoD or lengths.

What walks along many sequences at once takes step t of all of them together. These functions say
where the steps lie, whether the sequences stand one below the other (LoD) or each in a line of its
own (a padded tensor with lengths). Generated modules carry them as they stand.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array


def places_by_lod(offsets: Array) -> tuple[Array, Array]:
    """For each sequence (a line) and step: its row, 0 beyond the end; and whether there is one.

    >>> places_by_lod(np.array([0, 1, 3]))[0].tolist()
    [[0, 0], [1, 2]]
    """
    counts = np.diff(offsets)
    steps: Array = np.arange(int(counts.max(initial=0)))
    there: Array = steps < counts[:, None]
    return np.where(there, offsets[:-1, None] + steps, 0), there


def places_by_length(lengths: Array, longest: int, name: str) -> tuple[Array, Array]:
    """The same for lines of `longest` rows; ValueError for a length that does not fit.

    >>> places_by_length(np.array([[1], [2]]), 2, "Length")[1].tolist()
    [[True, False], [True, True]]
    """
    counts = lengths.reshape(-1, 1)
    wrong = (counts < 0) | (counts > longest)
    if wrong.any():
        raise ValueError(f"{name} has {counts[wrong][0]}, expected lengths from 0 to {longest}")
    rows = np.arange(len(counts) * longest).reshape(-1, longest)
    there = np.arange(longest) < counts
    return np.where(there, rows, 0), there
