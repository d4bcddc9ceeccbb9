"""Settings of the C allocator: how much freed memory a process keeps."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from compiler.support.settings.systems import MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_

_ARENA_MAX, _MMAP_MAX, _MMAP_THRESHOLD, _TOP_PAD, _TRIM_THRESHOLD = -8, -4, -3, -2, -1


@cache
def reuse_freed_blocks() -> None:
    """Let the allocator reuse blocks of up to 4 MiB, and keep up to 16 MiB of freed memory.

    Otherwise every temporary array of a step in NumPy with more than 128 KiB costs a mapping and
    its page faults, until a larger array was freed. Settings of the user stay.
    """
    if not (MALLOC_MMAP_THRESHOLD_.read() or MALLOC_TRIM_THRESHOLD_.read()):
        _set({_MMAP_THRESHOLD: 4 << 20, _TRIM_THRESHOLD: 16 << 20})


def keep_freed_memory() -> None:
    """Let the allocator of a process that sends and receives large messages keep freed memory.

    Otherwise each message of megabytes costs a mapping and its page faults.
    """
    reuse_freed_blocks()
    _set({_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: 1 << 30, _TOP_PAD: 64 << 20})


def _set(values: Mapping[int, int]) -> None:
    """Change settings; nothing on systems other than Linux, or without `mallopt`."""
    if sys.platform != "linux":
        return
    with suppress(OSError, TypeError, AttributeError):  # Windows has no library of the program
        change = ctypes.CDLL(None).mallopt
        for setting, value in values.items():
            change(setting, value)
