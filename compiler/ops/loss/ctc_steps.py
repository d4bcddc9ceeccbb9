"""Time steps and label indices of each line, for code that launches a kernel per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ops.loss.padded import rows_by_length, rows_by_lod


def ctc_steps(
    levels: list[Array] | None,
    label_levels: list[Array] | None,
    lengths: Array | None,
    label_lengths: Array | None,
    longest: int,
    most: int,
) -> tuple[list[int], list[int], Array, Array, int, Array]:
    """Return the steps ascending and descending, and the row of each line and step.

    Then the index of each line's labels in Label, the largest label count, and the lengths of lines
    in steps and labels, [2, lines]. Raises ValueError if lengths are missing or do not match.

    >>> ctc_steps([np.array([0, 1, 3])], [np.array([0, 1, 2])], None, None, 3, 1)[2].tolist()
    [[0, 0], [1, 2]]
    """
    if lengths is not None and label_lengths is not None:
        rows, valid = rows_by_length(lengths, longest, "LogitsLength")
        step, line = np.arange(longest), np.arange(len(rows))
        rows = np.where(valid, step * len(rows) + line[:, None], 0)
        label_at, named = rows_by_length(label_lengths, most, "LabelLength")
    elif levels and label_levels:
        rows, valid = rows_by_lod(levels[-1])
        label_at, named = rows_by_lod(label_levels[-1])
    else:
        raise ValueError("warpctc needs LoD of Logits and Label, or both their lengths")
    if len(rows) != len(label_at):
        raise ValueError(f"there are {len(rows)} sequences in Logits, {len(label_at)} in Label")
    sizes: Any = np.stack([valid.sum(1), named.sum(1)]).astype(np.int64)
    steps = list(range(rows.shape[1]))
    return steps, steps[::-1], rows, label_at, int(label_at.shape[1]), sizes
