"""Locks on folders, which exclude saves and loads of other processes.

On Unix the folder itself is locked (`flock`), so that no lock file remains in it. Windows locks
files only: an empty file in the temporary folder stands for each folder. Either way the kernel
releases the lock when its process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

flock: Any = None
"""The module of Python that locks on Unix, None elsewhere."""
locking: Any = None
"""The module that locks on Windows, None elsewhere."""
with suppress(ImportError):
    import fcntl as flock
with suppress(ImportError):
    import msvcrt as locking

PATIENCE = 120.0
"""Seconds to wait for other processes before giving up."""

_PAUSE = 0.005
_READERS = 64
"""Most processes that may read a folder at once on Windows: bytes of the file that is locked."""


@contextmanager
def locked(folder: Path, *, exclusive: bool) -> Generator[None]:
    """Hold the lock of a folder: exclusive for a save, shared for a load.

    A folder that is missing or may not be listed, and a system without locks, are used unlocked.
    Raises TimeoutError after `PATIENCE` seconds.
    """
    handle = _opened(folder)
    if handle is None:
        yield
        return
    try:
        _wait(handle, folder, exclusive)
        yield
    finally:
        os.close(handle)


def lock_if_free(folder: Path) -> int | None:
    """Lock a folder exclusively; return the handle to close, or None if another process has the
    lock.
    """
    handle = _opened(folder)
    if handle is not None and not _take(handle, exclusive=True):
        os.close(handle)
        return None
    return handle


def _opened(folder: Path) -> int | None:
    """Open what is locked for a folder: on Windows a file, since folders cannot be opened."""
    try:
        if flock is None and locking is not None:
            return os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT)
        return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return None


def _lock_file(folder: Path) -> Path:
    """Return the file that stands for a folder, the same for all its paths."""
    place = os.path.normcase(folder.resolve(strict=True))
    digest = hashlib.sha256(place.encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir(), f"fluid-{digest}.lock")


def _wait(handle: int, folder: Path, exclusive: bool) -> None:
    end = time.monotonic() + PATIENCE
    while not _take(handle, exclusive):
        if time.monotonic() > end:
            hint = "wait for it or end it, then try again"
            raise TimeoutError(f"another process has locked {folder} for too long: {hint}")
        time.sleep(_PAUSE)


def _take(handle: int, exclusive: bool) -> bool:
    """Try to take the lock; a system, or a file system, without locks counts as free."""
    if flock is not None:
        kind = flock.LOCK_EX if exclusive else flock.LOCK_SH
        return _is_granted(lambda: flock.flock(handle, kind | flock.LOCK_NB))
    if locking is None:
        return True
    if exclusive:
        return _take_bytes(handle, 0, _READERS)
    return any(_take_bytes(handle, reader, 1) for reader in range(_READERS))


def _take_bytes(handle: int, first: int, count: int) -> bool:
    """Lock bytes of a file on Windows, which has exclusive locks only."""
    os.lseek(handle, first, os.SEEK_SET)
    return _is_granted(lambda: locking.locking(handle, locking.LK_NBLCK, count))


def _is_granted(lock: Callable[[], object]) -> bool:
    try:
        lock()
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True
