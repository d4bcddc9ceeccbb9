"""Sectors of 32 bytes that accesses of global memory move.

A model of the caches: an L1 cache for each CTA, of 32 KiB in 256 sets of 4 sectors, of which the
oldest is replaced; loads that miss it fetch sectors from the L2 cache. Stores and atomics write
through: each instruction of a warp moves the sectors that it touches. The L2 cache holds everything
that a launch touches.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from tools.ptx.counters.results import SECTOR, Traffic
from tools.ptx.group import WARP, Group

SETS, WAYS = 256, 4
"""Sets of the L1 cache of a CTA, and the sectors in each."""

_SHIFT = 48
"""Bits of an address; the number of the warp or CTA is above them in a key."""


class Footprint:
    """The bytes of some ranges that were touched."""

    def __init__(self, starts: Array, stops: Array) -> None:
        self._starts = starts
        low = starts // np.uint64(SECTOR) * np.uint64(SECTOR)
        sizes = (-(-(stops - low).astype("i8") // SECTOR)) * SECTOR
        self._shift = np.cumsum(sizes) - sizes - low.astype("i8")
        self._bytes = np.zeros(int(sizes.sum()), "u1")

    def mark(self, at: Array, size: int) -> None:
        """Touch `size` bytes, a power of two, at aligned addresses within the ranges."""
        place = at.astype("i8") + self._shift[np.searchsorted(self._starts, at, "right") - 1]
        width = min(size, 8)
        cells = self._bytes.view(f"u{width}")
        for offset in range(size // width):
            cells[place // width + offset] = np.iinfo(cells.dtype).max

    @property
    def nbytes(self) -> int:
        """The number of bytes touched."""
        return int(np.count_nonzero(self._bytes))

    @property
    def sectors(self) -> int:
        """The number of sectors touched."""
        return int(np.count_nonzero(self._bytes.view("u8").reshape(-1, SECTOR // 8).any(1)))


class Cache:
    """The L1 caches of the CTAs of a group: in each set the latest sectors that were fetched."""

    def __init__(self, ctas: int) -> None:
        self._held = np.full((ctas * SETS, WAYS), -1)
        self._next = np.zeros(ctas * SETS, "i8")

    def fetch(self, cta: Array, sector: Array) -> int:
        """Load distinct sectors; returns the number of those that were not cached."""
        place = cta * SETS + ((sector ^ sector >> 8 ^ sector >> 16) % SETS)
        absent = (self._held[place] != sector[:, None]).all(1)
        if absent.any():
            self._keep(place[absent], sector[absent])
        return int(np.count_nonzero(absent))

    def _keep(self, place: Array, sector: Array) -> None:
        """Replace the oldest sectors of sets, which may be given several times."""
        order = np.argsort(place, kind="stable")
        place, sector = place[order], sector[order]
        _, start, times = np.unique(place, return_index=True, return_counts=True)
        rank = np.arange(len(place)) - np.repeat(start, times)
        self._held[place, (self._next[place] + rank) % WAYS] = sector
        self._next[place[start]] += times


def count_access(
    group: Group, cache: Cache | None, lanes: Array, at: Array, size: int, counted: list[Traffic]
) -> None:
    """Add an instruction's accesses of global memory; stores and atomics have no `cache`."""
    keys = np.unique((lanes // WARP).astype("i8") << _SHIFT | at.astype("i8"))
    touched = _distinct(keys >> 5)
    warps = _distinct(touched >> (_SHIFT - 5))
    moved = len(touched) if cache is None else _missed(group, cache, touched)
    for counter in counted:
        counter.accesses += len(warps)
        counter.requests += len(touched)
        counter.used += len(keys) * size
        counter.fetched += moved


def _missed(group: Group, cache: Cache, touched: Array) -> int:
    """Fetch sectors, each once for a CTA however many warps touch it."""
    warps_of_cta = group.pitch // WARP
    cta = (touched >> (_SHIFT - 5)) // warps_of_cta
    sector = touched & ((1 << (_SHIFT - 5)) - 1)
    if warps_of_cta > 1:
        keys = np.unique(cta << (_SHIFT - 5) | sector)
        cta, sector = keys >> (_SHIFT - 5), keys & ((1 << (_SHIFT - 5)) - 1)
    return cache.fetch(cta, sector)


def _distinct(ordered: Array) -> Array:
    """The distinct numbers of an array in order."""
    fresh = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]
