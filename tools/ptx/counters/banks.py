"""Passes of accesses of shared memory: 32 banks, each of which serves one word of 4 bytes a pass.

Warps access 8 bytes a thread in two halves, and 16 bytes a thread in four quarters; threads that
read the same word share a pass.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from tools.ptx.counters.results import Banks
from tools.ptx.group import WARP, Group

BANKS, WORD = 32, 4


class BankCounter:
    """Counts accesses and passes; patterns of addresses that repeat are computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, int], tuple[int, int]] = {}

    def count(self, group: Group, lanes: Array, at: Array, size: int, counted: list[Banks]) -> None:
        """Add an instruction's accesses of `size` bytes by these lanes."""
        times, rows, addresses = _one_cta(group, lanes, at)
        key = (rows.tobytes(), addresses.tobytes(), size)
        if key not in self._known:
            self._known[key] = passes(rows, addresses, size)
        accesses, needed = self._known[key]
        for counter in counted:
            counter.accesses += times * accesses
            counter.passes += times * needed


def _one_cta(group: Group, lanes: Array, at: Array) -> tuple[int, Array, Array]:
    """How many CTAs access the same addresses, and the lanes and addresses of the first of them.

    If they differ, all lanes are those of one CTA, with the banks of each warp by itself.
    """
    lanes_per_cta = len(lanes) // group.ctas
    if lanes_per_cta and lanes_per_cta * group.ctas == len(lanes):
        rows = (lanes % group.pitch).reshape(group.ctas, lanes_per_cta)
        places = at.reshape(group.ctas, lanes_per_cta)
        if (rows == rows[0]).all() and (places == places[0]).all():
            return group.ctas, rows[0], places[0]
    return 1, lanes, at


def passes(lanes: Array, at: Array, size: int) -> tuple[int, int]:
    """The accesses of at most 128 bytes that lanes make, and the passes of all.

    >>> lanes = np.arange(32)
    >>> passes(lanes, 4 * lanes, 4), passes(lanes, 128 * lanes, 4), passes(lanes, 0 * lanes, 4)
    ((1, 1), (1, 32), (1, 1))
    """
    part = lanes.astype("i8") // min(WARP, BANKS * WORD // size if size > WORD else WARP)
    first = at.astype("i8") // WORD
    words = first[:, None] + np.arange(max(size // WORD, 1))
    keys = np.unique(part[:, None] << 32 | words)
    banks, times = np.unique((keys >> 32) * BANKS + keys % BANKS, return_counts=True)
    accesses, start = np.unique(banks // BANKS, return_index=True)
    return len(accesses), int(np.maximum.reduceat(times, start).sum()) if len(start) else 0
