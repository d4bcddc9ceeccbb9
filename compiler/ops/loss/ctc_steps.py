"""Where steps and labels of each line lie, for code that launches a kernel for each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ops.loss.padded import places_by_length, places_by_lod


def ctc_steps(
    levels: list[Array] | None,
    label_levels: list[Array] | None,
    lengths: Array | None,
    label_lengths: Array | None,
    longest: int,
    most: int,
) -> tuple[list[int], list[int], Array, Array, int, Array]:
    """The steps, the first one first and the last one first; the row of each line and step.

    Then the place of each line's labels in Label, how many the longest has, and how long lines are
    in steps and in labels, [2, lines]. ValueError where nothing says it, or two do not agree.

    >>> ctc_steps([np.array([0, 1, 3])], [np.array([0, 1, 2])], None, None, 3, 1)[2].tolist()
    [[0, 0], [1, 2]]
    """
    if lengths is not None and label_lengths is not None:
        rows, there = places_by_length(lengths, longest, "LogitsLength")
        step, line = np.arange(longest), np.arange(len(rows))
        rows = np.where(there, step * len(rows) + line[:, None], 0)
        places, named = places_by_length(label_lengths, most, "LabelLength")
    elif levels and label_levels:
        rows, there = places_by_lod(levels[-1])
        places, named = places_by_lod(label_levels[-1])
    else:
        raise ValueError("warpctc needs LoD of Logits and Label, or both their lengths")
    if len(rows) != len(places):
        raise ValueError(f"there are {len(rows)} sequences in Logits, {len(places)} in Label")
    sizes: Any = np.stack([there.sum(1), named.sum(1)]).astype(np.int64)
    steps = list(range(rows.shape[1]))
    return steps, steps[::-1], rows, places, int(places.shape[1]), sizes
