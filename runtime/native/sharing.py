"""Which commands are shared among threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array
from runtime.native.executor import ALONE, SHARED, WAKES

SHARED_FROM = 1 << 18
"""Least work of a command that is shared: flops plus bytes, two microseconds or more. To share one
costs about one microsecond."""
WAKES_FROM = 1 << 22
"""Least work for which sleeping threads are woken, which takes them about forty microseconds."""


def share(units: Array | Sequence[int], work: Array | Sequence[int]) -> Array:
    """How to share each command, from its units and its work: int64, as long as these.

    Threads are woken for a command that is shared if enough of them follow. Raises OverflowError
    for work that 63 bits do not count.

    >>> share([1, 8, 8, 8], [1 << 23, 1 << 23, 100, 1 << 20]).tolist()
    [0, 2, 0, 1]
    """
    try:
        costs = np.asarray(work, np.int64)
    except OverflowError:
        raise OverflowError(
            f"a kernel would take {max(work):.0e} operations; a window, a padding or a size of the "
            "program may be wrong"
        ) from None
    is_shared = (np.asarray(units) >= 2) & (costs >= SHARED_FROM)
    ahead = np.cumsum(np.where(is_shared, costs, 0)[::-1])[::-1]
    return np.where(is_shared, np.where(ahead >= WAKES_FROM, WAKES, SHARED), ALONE)


def how_to_share(units: int, work: int) -> int:
    """How to share one command, as `share` without others after it.

    >>> how_to_share(1, 1 << 23), how_to_share(8, 1 << 23), how_to_share(8, 1 << 20)
    (0, 2, 1)
    """
    if units < 2 or work < SHARED_FROM:
        return ALONE
    return WAKES if work >= WAKES_FROM else SHARED
