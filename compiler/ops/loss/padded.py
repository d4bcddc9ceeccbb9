"""Padded layout of sequences of different lengths: their row indices, from LoD or lengths.

Code that processes many sequences together takes step t of all of them at once. These functions
compute the rows of the steps, for concatenated sequences (LoD) and for padded ones (with lengths).
Generated modules copy them.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array


def rows_by_lod(offsets: Array) -> tuple[Array, Array]:
    """Return the row of each sequence (line) and step, 0 beyond the end, and a validity mask.

    >>> rows_by_lod(np.array([0, 1, 3]))[0].tolist()
    [[0, 0], [1, 2]]
    """
    counts = np.diff(offsets)
    steps: Array = np.arange(int(counts.max(initial=0)))
    valid: Array = steps < counts[:, None]
    return np.where(valid, offsets[:-1, None] + steps, 0), valid


def expect_labels_of_lines(labels: Array, lengths: Array | None, count: int, what: str) -> None:
    """Raise ValueError for a label that is not in [0, count).

    With `lengths`, labels are padded lines, of which those beyond a line's length do not count.
    """
    if lengths is not None:
        lines = labels.reshape(len(lengths), labels.size // max(len(lengths), 1))
        labels = lines[np.arange(lines.shape[1]) < lengths.reshape(-1, 1)]
    if labels.view(f"u{labels.itemsize}").max(initial=0) >= count:
        wrong = labels[(labels < 0) | (labels >= count)]
        raise ValueError(f"Label has {wrong[0]}, expected {what} from 0 to {count - 1}")


def rows_by_length(lengths: Array, longest: int, name: str) -> tuple[Array, Array]:
    """Return rows and mask as `rows_by_lod`, for padded lines of `longest` rows.

    Raises ValueError for a length out of range.

    >>> rows_by_length(np.array([[1], [2]]), 2, "Length")[1].tolist()
    [[True, False], [True, True]]
    """
    counts = lengths.reshape(-1, 1)
    wrong = (counts < 0) | (counts > longest)
    if wrong.any():
        raise ValueError(f"{name} has {counts[wrong][0]}, expected lengths from 0 to {longest}")
    rows = np.arange(len(counts) * longest).reshape(-1, longest)
    valid = np.arange(longest) < counts
    return np.where(valid, rows, 0), valid
