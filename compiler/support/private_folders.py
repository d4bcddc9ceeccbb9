"""Folders of caches that only their user can write to, opened by descriptor.

The code in a cache is executed as it is found. That is safe in a folder that only its user can
write to, who could as well change the program. The digests in a cache detect damage, not malice,
since whoever can write the code can write its digest too.

A check of a path would be of no use: whoever owns a folder above can put another folder or a link
in the place of this one between the check and the read. So the folder is opened once and checked by
its descriptor, files are opened below the descriptor and checked by theirs, and of the links on the
way only those of this user and of root are followed. Windows has neither owners nor such
descriptors: folders of a user's profile, where caches are by default, are private there.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath
from typing import BinaryIO

from compiler.support.dataclass import dataclass
from compiler.support.settings.setting import Setting
from compiler.support.user_warnings import warn_user

DRAFT = re.compile(r"\.draft-[0-9a-f]{16}")
"""The name of a file or folder that is still being written."""
PRIVATE = 0o700
"""Mode of folders that are created here: no access for others."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_IS_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_ENTER = _IS_FOLDER | getattr(os, "O_PATH", 0)
"""Flags to open a folder on the way, which need not be readable."""
_READ = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NO_SPACE = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_MOST_LINKS = 40
"""Most links on the way to a folder, as on Linux."""


def draft_name() -> str:
    """A new name for a file or folder that is being written, as `DRAFT` describes."""
    return f".draft-{os.urandom(8).hex()}"


class NotPrivate(PermissionError):
    """A folder or a file of a cache that another user can change; the text says why."""


def is_private(
    folder: Path, variable: Setting[str] | Setting[str | None], by_path: bool = False
) -> bool:
    """Whether code from a cache folder may be executed; a missing folder is created.

    It must belong to this user, and nobody else may write to it, or replace it in its parent
    folder. Warns with the reason otherwise; `variable` is the environment variable that selects the
    cache. A folder that cannot be opened or created is not private, of which a warning tells only
    if the variable is set: a read-only home is no mistake. One that others will read `by_path` must
    be safe from its root on: its readers do not check what they open.
    """
    try:
        with private_folder(folder, create=True, by_path=by_path):
            return True
    except NotPrivate as error:
        hint = f"set {variable.name} to a folder of your own, or make this one private (chmod go-w)"
        text = f"compiled code in {folder} is neither read nor written: {error}; {hint}"
        warn_user(text)
    except OSError as error:
        if error.errno in _NO_SPACE:
            _warn_full(folder.parent)
        elif variable.is_set():
            where = f"{variable.name}={variable.text()}"
            warn_user(f"compiled code is not kept, as {where} cannot be used: {error.strerror}")
    return False


@contextmanager
def private_folder(
    folder: Path, create: bool = False, by_path: bool = False
) -> Generator[PrivateFolder]:
    """Open a cache folder as long as the block runs; `by_path` as for `is_private`.

    Raises NotPrivate if another user can write to it, replace it in its parent folder, or has put a
    link on the way to it, and OSError if it cannot be opened.
    """
    if not _HAS_OWNERS:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        yield PrivateFolder(folder, None)
        return
    descriptor = _opened(folder, _Walk(folder, create, by_path))
    try:
        yield PrivateFolder(folder, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def suppress_disk_errors(folder: Path) -> Generator[None]:
    """End the block on an OSError of a cache folder: what it was to write is not cached.

    A disk that is full, or a quota that is used up, is told with one warning for each process.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            _warn_full(folder.parent)


@cache
def _warn_full(folder: Path) -> None:
    text = f"compiled code is not kept, as the disk of {folder} is full"
    warn_user(f"{text}; free some space, or set FLUID_CACHE to a folder of another disk")


class PrivateFolder:
    """An open folder that only this user can write to. `descriptor` is None on Windows.

    Names are those of files in it. Methods raise OSError for what cannot be read or written.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises NotPrivate for one that others can write to."""
        descriptor = os.open(self._place(name), os.O_RDONLY | _READ, dir_fd=self._descriptor)
        try:
            _expect_file(self.path / name, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    def read(self, name: str, most: int) -> bytes:
        """Read a file. Raises ValueError for one of more than `most` bytes."""
        with self.open(name) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise ValueError(f"{self.path / name} is larger than {most} bytes")
            return file.read()

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write a file as a whole, or leave what was there; only this user can read it."""
        draft = draft_name()
        descriptor = os.open(self._place(draft), _CREATE, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(parts)
            self.rename(draft, name)
        except BaseException:
            self.remove(draft)
            raise

    def rename(self, name: str, new: str) -> None:
        """Rename a file or a folder; replaces a file of the new name."""
        here = self._descriptor
        os.replace(self._place(name), self._place(new), src_dir_fd=here, dst_dir_fd=here)

    def touch(self, name: str) -> None:
        """Set the modification time of a file, which is its last use, to now."""
        if self._descriptor is None:
            os.utime(self._place(name))
        else:
            os.utime(name, dir_fd=self._descriptor, follow_symlinks=False)

    def stat(self, name: str) -> os.stat_result:
        """What the system reports about a file or folder, or about a link itself."""
        return os.stat(self._place(name), dir_fd=self._descriptor, follow_symlinks=False)

    def names(self) -> list[str]:
        """The names of all files and folders, sorted."""
        with os.scandir(self.path if self._descriptor is None else self._descriptor) as files:
            return sorted(file.name for file in files)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; one that cannot be removed remains."""
        with suppress(OSError):
            if not stat.S_ISDIR(self.stat(name).st_mode):
                os.unlink(self._place(name), dir_fd=self._descriptor)
                return
        shutil.rmtree(self._place(name), ignore_errors=True, dir_fd=self._descriptor)

    @contextmanager
    def subfolder(self, name: str, create: bool = False) -> Generator[PrivateFolder]:
        """Open a folder in this one, as `private_folder` does; no link is followed."""
        place, here = self.path / name, self._descriptor
        if create:
            os.mkdir(self._place(name), PRIVATE, dir_fd=here)
        if here is None:
            yield PrivateFolder(place, None)
            return
        descriptor = os.open(name, os.O_RDONLY | _IS_FOLDER, dir_fd=here)
        try:
            _expect_own(place, os.fstat(descriptor))
            yield PrivateFolder(place, descriptor)
        finally:
            os.close(descriptor)

    def _place(self, name: str) -> str:
        return str(self.path / name) if self._descriptor is None else name


def _opened(folder: Path, walk: _Walk) -> int:
    """Open a folder and check it and its parent; returns the descriptor. Raises as described."""
    start = os.open(folder.anchor or ".", _ENTER)
    way = walk.open(start, folder.parent.relative_to(folder.anchor))
    try:
        _expect_around(folder.parent, os.fstat(way))
    except BaseException:
        os.close(way)
        raise
    way = walk.open(way, PurePath(folder.name))
    try:
        _expect_own(folder, os.fstat(way))
        return os.open(".", os.O_RDONLY | _IS_FOLDER, dir_fd=way)
    finally:
        os.close(way)


@dataclass(frozen=True)
class _Walk:
    """Opens the folders on the way to `folder` one by one; `create` makes those that are missing.

    With `by_path`, others must not be able to replace any of them.
    """

    folder: Path
    create: bool
    by_path: bool

    def open(self, start: int, path: PurePath) -> int:
        """Open the folder at a path from an open one, which is closed; returns its descriptor.

        Links of this user and of root are followed. Raises NotPrivate for another one.
        """
        here, names, links = start, [*reversed(path.parts)], 0
        try:
            while names:
                name = names.pop()
                target = self._target(here, name)
                if target is None:
                    here = self._enter(here, name)
                    continue
                names += reversed(PurePath(target).parts)
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self.folder))
        except BaseException:
            os.close(here)
            raise
        return here

    def _enter(self, here: int, name: str) -> int:
        """Open a folder in another one, which is closed then; `name` may be that of the root."""
        there = os.open(name, _ENTER, dir_fd=here)
        try:
            if self.by_path:
                _expect_safe(name, self.folder, os.fstat(there))
        except BaseException:
            os.close(there)
            raise
        os.close(here)
        return there

    def _target(self, here: int, name: str) -> str | None:
        """Return where a link points; None for a folder, which is created if wanted."""
        try:
            before = os.stat(name, dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            if not self.create:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE, dir_fd=here)
            return None
        if not stat.S_ISLNK(before.st_mode):
            return None
        target = os.readlink(name, dir_fd=here)
        after = os.stat(name, dir_fd=here, follow_symlinks=False)
        if before.st_uid not in (0, os.geteuid()) or _identity(before) != _identity(after):
            link = f"{name!r} on the way to {self.folder} is a link of the user {after.st_uid}"
            raise NotPrivate(f"{link}, not yours ({os.geteuid()})")
        return target


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """What differs if a link is replaced by another one."""
    return found.st_dev, found.st_ino, found.st_uid, found.st_ctime_ns


def _expect_safe(name: str, folder: Path, found: os.stat_result) -> None:
    """Raise NotPrivate if others can replace what is in a folder on the way to another one."""
    if found.st_uid not in (0, os.geteuid()):
        owner = f"belongs to the user {found.st_uid}"
        raise NotPrivate(f"{name!r} on the way to {folder} {owner}, not to you ({os.geteuid()})")
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        raise NotPrivate(f"others may write to {name!r} on the way to {folder}")


def _expect_around(place: Path, found: os.stat_result) -> None:
    """Raise NotPrivate if others can replace a folder in this one; in a sticky one, as /tmp, they
    cannot.
    """
    if found.st_uid != 0 or not found.st_mode & stat.S_ISVTX:
        _expect_own(place, found)


def _expect_file(place: Path, found: os.stat_result) -> None:
    """Raise OSError for what is no regular file, and NotPrivate for one of another user."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(place))
    if _HAS_OWNERS:
        _expect_own(place, found)


def _expect_own(place: Path, found: os.stat_result) -> None:
    """Raise NotPrivate if a folder or file belongs to another user, or others can write to it."""
    if found.st_uid != os.geteuid():
        text = f"belongs to the user {found.st_uid}, not to you ({os.geteuid()})"
        raise NotPrivate(f"{place} {text}")
    if found.st_mode & _OTHERS_WRITE:
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        raise NotPrivate(f"others may write to {place}, its mode is {mode}")


def trim(folder: PrivateFolder, entries: Mapping[str, str], limit: int) -> None:
    """Remove the least recently used entries until the others take at most `limit` bytes.

    `entries` maps each entry, a file or a folder of files, to the file whose modification time is
    its last use; those of one such file are removed together. One that another process removes
    meanwhile counts as empty; one that cannot be removed remains.
    """
    usage = {name: _size_and_use(folder, name, used) for name, used in entries.items()}
    excess = sum(size for size, _ in usage.values()) - limit
    if excess <= 0:
        return
    last = ""
    for name in sorted(usage, key=lambda each: (usage[each][1], entries[each])):
        if excess <= 0 and entries[name] != last:
            return
        last = entries[name]
        folder.remove(name)
        excess -= usage[name][0]


def is_due(key: str, nbytes: int, limit: int) -> bool:
    """Whether to trim after an entry was added under a digest in hexadecimal: for entries of at
    least 1/256 of the limit, and one of eight others.

    Trimming looks at all files, which takes longer than to store a small one; entries exceed the
    limit by about 1/32 at most.
    """
    return 256 * nbytes >= limit or int(key[-1], 16) % 8 == 0


def _size_and_use(folder: PrivateFolder, name: str, used: str) -> tuple[int, float]:
    """The bytes of a file, or of the files in a folder, and the time of the last use."""
    last = _stat(folder, used)
    return _size(folder, name), last.st_mtime if last is not None else 0.0


def _size(folder: PrivateFolder, name: str) -> int:
    status = _stat(folder, name)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return 0 if status is None else status.st_size
    with suppress(OSError), folder.subfolder(name) as files:
        return sum(files.stat(entry).st_size for entry in files.names())
    return 0


def _stat(folder: PrivateFolder, name: str) -> os.stat_result | None:
    with suppress(OSError):
        return folder.stat(name)
    return None
