"""Reads of device memory that nobody wrote since it was allocated.

`mark` fills new memory with words of four bytes, each a signalling NaN whose payload follows from
its address: no arithmetic computes it, and a copy of it lies at another address. A load of a word
that still has its mark reads what neither a kernel nor the host has written. Elements of one or two
bytes are seen if their whole word is unwritten.
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import fault
from tools.ptx.counters.observers import Access
from tools.ptx.errors import Unwritten
from tools.ptx.group import Group

_NAN, _PAYLOAD = np.uint32(0x7FA00000), np.uint64(0xFFFFF)
_MOST = 1 << 20
"""Words that are marked at once."""


def mark(start: int, nbytes: int) -> None:
    """Mark memory of this process, from an address that is a multiple of 4, as unwritten."""
    count = nbytes // 4
    if not count:
        return
    window = (ctypes.c_uint32 * count).from_address(start)
    words: Array = np.frombuffer(cast(Any, window), "u4")
    for first in range(0, count, _MOST):
        part = words[first : first + _MOST]
        at = np.arange(part.size, dtype="u8") * np.uint64(4)
        part[:] = marks(at + np.uint64(start + 4 * first))


def marks(at: Array) -> Array:
    """The marks of words, uint32, by their addresses, uint64."""
    mixed = (at >> np.uint64(2)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(40) & _PAYLOAD).astype("u4") | _NAN


def expect_written(group: Group, access: Access) -> None:
    """Raise Unwritten if lanes read words of global memory that have their marks."""
    inside = ~group.memory.outside(access.at, access.size, False)  # the access reports others
    lanes, at = access.lanes[inside], access.at[inside]
    if not len(lanes):
        return
    first = at & ~np.uint64(3)
    unwritten = np.zeros(len(lanes), bool)
    for offset in range(0, max(access.size, 4), 4):
        word = first + np.uint64(offset)
        unwritten |= group.memory.load(word, 4) == marks(word)
    if unwritten.any():
        place = group.memory.name_near(int(at[unwritten][0]))
        what = f"is memory that nobody wrote, {place}"
        raise fault(group, access.instruction, lanes[unwritten], at[unwritten], what, Unwritten)
