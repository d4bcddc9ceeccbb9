"""Members of `.npz` files, refused by what an archive declares before memory is taken for it.

A few kilobytes of an archive may declare any number of bytes. So its directory is read only if it
is small; names are unique; and a member is read only if all declared sizes together fit in the
memory limit and the bytes that are there can be decompressed to them.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import SEEK_SET, BufferedReader
from pathlib import Path
from struct import error as StructError
from typing import IO

from compiler.options import Options
from fluid.cli.model import CommandError
from runtime.memory.limit import bytes_text
from runtime.memory.machine_memory import machine_memory

DIRECTORY_BYTES = 8 << 20
"""Maximum bytes of the directory of an archive; each member takes 46 and its name."""
MEMBERS = 1 << 16
"""Maximum number of members of an archive."""

_DEFLATED_TO = 1032
"""The most bytes that DEFLATE compresses to one."""
_ENCRYPTED = 1
"""The flag of a member that is encrypted."""

DAMAGED = (
    *(zipfile.BadZipFile, EOFError, zlib.error, StructError, UnicodeDecodeError),
    NotImplementedError,
)
"""What reading a damaged archive may raise, besides CommandError and OSError."""


def members(
    path: Path, suffix: str, limit: int | None = None
) -> Iterator[tuple[str, zipfile.ZipInfo, IO[bytes]]]:
    """Open the members of an archive one by one: names without the suffix, sizes, bytes.

    `limit` is the maximum number of bytes of all members, by default FLUID_MEMORY_LIMIT or the
    memory of this machine. Raises CommandError for an archive that declares more, for one that
    cannot be what it declares, for equal names, and what `DAMAGED` lists.
    """
    if limit is None:
        limit = Options.from_env().memory_limit_bytes or machine_memory()
    with _opened(path) as archive:
        infos = archive.infolist()
        names = [info.filename.removesuffix(suffix) for info in infos]
        _check(path, infos, names, limit)
        for name, info in zip(names, infos, strict=True):
            with archive.open(info) as member:
                yield name, info, member


@contextmanager
def _opened(path: Path) -> Generator[zipfile.ZipFile]:
    with _Bounded(path.open("rb", buffering=0)) as file:
        file.path, file.most = path, DIRECTORY_BYTES
        with zipfile.ZipFile(file) as archive:
            file.most = None
            yield archive


class _Bounded(BufferedReader):
    """A file that reads no more than `most` bytes at once while that is a number.

    `zipfile` reads the directory as a whole, whose size the archive declares.
    """

    path: Path
    most: int | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes. Raises CommandError for too many."""
        if self.most is not None and size is not None and size > self.most:
            raise CommandError(
                f"{self.path} declares a directory of {bytes_text(size)}, more than the "
                f"{bytes_text(self.most)} of {MEMBERS} arrays"
            )
        return super().read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to an offset. Raises BadZipFile for one before the start."""
        if offset < 0 and whence == SEEK_SET:
            raise zipfile.BadZipFile(f"it has a part at byte {offset}")
        return super().seek(offset, whence)


def _check(path: Path, infos: list[zipfile.ZipInfo], names: list[str], limit: int | None) -> None:
    """Raise CommandError for an archive that declares too much, or what it cannot have."""
    if len(infos) > MEMBERS:
        raise CommandError(f"{path} has {len(infos)} arrays, more than {MEMBERS}: nothing was read")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise CommandError(f"{path} has two arrays {twice!r:.200}: nothing was read")
    for info in infos:
        if reason := _reason(info):
            raise CommandError(f"{path}: {info.filename!r:.200} {reason}: nothing was read")
    total = sum(info.file_size for info in infos)
    if limit is not None and total > limit:
        raise CommandError(
            f"the arrays of {path} take {bytes_text(total)}, more than the memory limit of "
            f"{bytes_text(limit)}: nothing was read"
        )


def _reason(info: zipfile.ZipInfo) -> str:
    """Why a member cannot be what the directory declares; empty if it can."""
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATED_TO}.get(info.compress_type)
    if ratio is None:
        return "is compressed by a method that NumPy does not use"
    if info.file_size > ratio * info.compress_size:
        return f"declares {info.file_size} bytes, but has {info.compress_size} compressed ones"
    return ""
