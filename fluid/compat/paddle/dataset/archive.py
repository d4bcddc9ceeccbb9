"""Reading of archive members without unpacking, with size limits.

Damage raises an error: a truncated compressed file, a missing member, an endless line or member.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from gzip import GzipFile
from typing import IO

from .common import DatasetError, md5file

__all__ = ["LONGEST_LINE", "MOST_BYTES", "checked", "lines", "members", "whole"]

MOST_BYTES = 1 << 28
"""The largest thing read at once; the largest in these data sets, a part of cifar, has 2**25."""
LONGEST_LINE = 1 << 20

_DAMAGE = (
    *(EOFError, LookupError, OSError, RuntimeError, ValueError),
    *(struct.error, tarfile.TarError, zipfile.BadZipFile, zlib.error),
)


@contextmanager
def checked(path: str, md5: str = "") -> Generator[None]:
    """Convert errors of the `with` block to DatasetError for a damaged file.

    The message has the actual and the expected checksum.
    """
    try:
        yield
    except DatasetError:
        raise
    except _DAMAGE as error:
        digest = md5file(path) if md5 else ""
        other = f"; its MD5 is {digest}, that of the published file {md5}" if digest != md5 else ""
        raise DatasetError(f"{path} cannot be read: {error}{other}") from error


def members(path: str, pattern: str | re.Pattern[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files in a tar archive whose names match a pattern, with their names; one at a time.

    Links and devices are passed over. Raises ValueError if there is none.
    """
    wanted = re.compile(pattern)
    has_match = False
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None and wanted.search(member.name):
                has_match = True
                yield member.name, file
    if not has_match:
        raise ValueError(f"it holds no file whose name matches {wanted.pattern!r}")


def lines(file: IO[bytes] | GzipFile) -> Iterator[bytes]:
    """The lines of a file; ValueError for one that does not end."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line has more than {LONGEST_LINE:,} bytes")
        yield line


def whole(file: IO[bytes], most: int = MOST_BYTES) -> bytes:
    """All bytes of a file; ValueError for more than `most`."""
    data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return data
