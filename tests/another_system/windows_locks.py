"""A fake `msvcrt` for Linux: the locks of Windows, by which each open file excludes others."""

import fcntl
import os
import struct

LK_NBLCK = 2
SET_LOCK_OF_OPEN_FILE = 37
"""F_OFD_SETLK of fcntl(2): a lock that belongs to the open file, not to the process."""


def locking(handle: int, mode: int, nbytes: int) -> None:
    """Lock bytes of a file from its position on. Raises PermissionError if one is locked."""
    assert mode == LK_NBLCK
    first = os.lseek(handle, 0, os.SEEK_CUR)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first, nbytes, 0)
    try:
        fcntl.fcntl(handle, SET_LOCK_OF_OPEN_FILE, lock)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error
