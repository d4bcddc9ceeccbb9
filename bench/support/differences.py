"""How far the outputs of two implementations differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def difference(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> float:
    """The largest difference of an output, divided by the largest number in it.

    Infinite if shapes differ, or if one has NaN.

    >>> difference([np.float32([1, 2])], [np.float32([1, 4])])
    0.5
    """
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return float("inf")
    return max(_relative(a, b) for a, b in zip(ours, theirs, strict=True))


def _relative(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    largest = float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30))
    return float("inf") if np.isnan(largest) else largest
