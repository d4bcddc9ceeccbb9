"""Time steps of tag sequences, for code that launches a kernel per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ops.loss.padded import rows_by_length, rows_by_lod


def line_rows(
    longest: int,
    levels: list[Array] | None,
    others: list[Array] | None,
    Length: Array | None,
) -> tuple[Array, Array]:
    """Return the rows of each sequence's steps, with a validity mask.

    The sequences are those of Emission, or of Label if only that has a LoD; with Length, lines of
    `longest` rows. Raises ValueError if there is neither, or if the two LoDs differ.
    """
    if Length is not None:
        return rows_by_length(Length, longest, "Length")
    offsets = [lod[-1] for lod in (levels, others) if lod]
    if not offsets:
        raise ValueError("sequences of tags need LoD or the input Length: Emission has neither")
    if any(not np.array_equal(other, offsets[0]) for other in offsets):
        raise ValueError("the sequences of Emission and Label have different lengths")
    return rows_by_lod(offsets[0])


def crf_steps(
    levels: list[Array] | None, others: list[Array] | None, Length: Array | None, longest: int
) -> tuple[Array, int, list[Any], list[Any]]:
    """Return the row, previous row, next row (or -1) and sequence of every step: [4, steps].

    Also returns the number of entries, and the (start, count) range of each time step, in ascending
    and in descending order.

    >>> crf_steps([np.array([0, 1, 3])], None, None, 0)[0].tolist()
    [[0, 1, 2], [-1, -1, 1], [-1, 2, -1], [0, 1, 1]]
    """
    row_at, valid = line_rows(longest, levels, others, Length)
    step, line = valid.T.nonzero()
    counts = valid.sum(1)
    row = row_at[line, step]
    before = np.where(step > 0, row_at[line, np.maximum(step - 1, 0)], -1)
    further = np.minimum(step + 1, max(valid.shape[1] - 1, 0))
    after = np.where(step + 1 < counts[line], row_at[line, further], -1)
    sizes = valid.sum(0)
    steps = list(zip((np.cumsum(sizes) - sizes).tolist(), sizes.tolist(), strict=True))
    return np.stack([row, before, after, line]).astype(np.int64), len(row), steps, steps[::-1]
