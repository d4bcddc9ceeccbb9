"""Settings of the C allocator for processes that send and receive many large messages."""

from __future__ import annotations

import ctypes
import sys

_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -8, -4, -1, -2


def keep_freed_memory() -> None:
    """Let the allocator keep freed memory instead of returning it after every message.

    Otherwise each message of megabytes costs a mapping and its page faults. Does nothing on systems
    other than Linux, or if the C library has no `mallopt`.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    pairs = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, 1 << 30), (_TOP_PAD, 64 << 20))
    for setting, value in pairs:
        library.mallopt(setting, value)
