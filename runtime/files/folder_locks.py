"""Locks on folders, which exclude saves and loads of other processes.

The folder itself is locked (`flock`), so that no lock file remains, and the kernel releases the
lock when its process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 120.0
"""Seconds to wait for other processes before giving up."""

_PAUSE = 0.005


@contextmanager
def locked(folder: Path, *, exclusive: bool) -> Generator[None]:
    """Hold the lock of a folder: exclusive for a save, shared for a load.

    A folder that is missing or may not be listed, and a file system without locks, are used
    unlocked. Raises TimeoutError after `PATIENCE` seconds.
    """
    handle = _opened(folder)
    if handle is None:
        yield
        return
    try:
        _wait(handle, folder, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def lock_if_free(folder: Path) -> int | None:
    """Lock a folder exclusively; return the handle to close, or None if another process has the
    lock.
    """
    handle = _opened(folder)
    if handle is not None and not _take(handle, fcntl.LOCK_EX):
        os.close(handle)
        return None
    return handle


def _opened(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None


def _wait(handle: int, folder: Path, kind: int) -> None:
    end = time.monotonic() + PATIENCE
    while not _take(handle, kind):
        if time.monotonic() > end:
            hint = "wait for it or end it, then try again"
            raise TimeoutError(f"another process has locked {folder} for too long: {hint}")
        time.sleep(_PAUSE)


def _take(handle: int, kind: int) -> bool:
    """Try to take the lock; a file system without locks counts as free."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
