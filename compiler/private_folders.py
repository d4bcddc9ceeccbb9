"""Caches of compiled code: checks that only the user can write to them, and limits their size.

The code in a cache is executed as it is found. That is safe in a folder that only its user can
write to, who could as well change the program. The digests in a cache detect damage, not malice,
since whoever can write the code can write its digest too.
"""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o700
"""Mode of folders that are created here: no access for others."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(folder: Path, variable: str) -> bool:
    """Whether code from a cache folder may be executed; a missing folder is created.

    It must belong to this user, and nobody else may write to it, or replace it in its parent
    folder. Warns with the reason otherwise; `variable` is the name of the environment variable that
    selects the cache. On Windows folders have neither owner nor mode: those of a user's profile,
    where caches are by default, are private.
    """
    try:
        for place in (folder.parent, folder):
            place.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        reason = _reason_around(folder.parent) or _reason(folder)
    except OSError:
        return True  # nothing can be read from or written to it
    if reason:
        hint = f"set {variable} to a folder of your own, or make this one private (chmod go-w)"
        text = f"compiled code in {folder} is neither read nor written: {reason}; {hint}"
        warnings.warn(text, stacklevel=2)
    return not reason


def _reason_around(place: Path) -> str:
    """Return why others can replace a folder in this one; empty if it is sticky, as /tmp is."""
    found = place.stat()
    if found.st_uid == 0 and found.st_mode & stat.S_ISVTX:
        return ""
    return _reason(place)


def _reason(place: Path) -> str:
    """Return why the files in a folder may be another user's; empty if they cannot be."""
    if not hasattr(os, "geteuid"):
        return ""
    found = place.stat()
    if found.st_uid != os.geteuid():
        return f"{place} belongs to the user {found.st_uid}, not to you ({os.geteuid()})"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write to {place}, its mode is {stat.S_IMODE(found.st_mode):o}"
    return ""


def trim(entries: Mapping[Path, Path], limit: int) -> None:
    """Remove the least recently used entries until the others take at most `limit` bytes.

    `entries` maps each entry, a file or a folder of files, to the file whose modification time is
    its last use. One that another process removes meanwhile counts as empty; one that cannot be
    removed remains.
    """
    found = {place: _size_and_use(place, used) for place, used in entries.items()}
    excess = sum(size for size, _ in found.values()) - limit
    if excess <= 0:
        return
    for place in sorted(found, key=lambda each: (found[each][1], str(entries[each]))):
        if excess <= 0:
            return
        _remove(place)
        excess -= found[place][0]


def is_due(key: str, nbytes: int, limit: int) -> bool:
    """Whether to trim after an entry was added under a digest in hexadecimal: for entries of at
    least 1/256 of the limit, and one of eight others.

    Trimming looks at all files, which takes longer than to store a small one; entries exceed the
    limit by about 1/32 at most.
    """
    return 256 * nbytes >= limit or int(key[-1], 16) % 8 == 0


def _size_and_use(place: Path, used: Path) -> tuple[int, float]:
    """The bytes of a file, or of the files in a folder, and the time of the last use."""
    found = _stat(place)
    last = found if used == place else _stat(used)
    return _size(place, found), last.st_mtime if last is not None else 0.0


def _stat(place: Path) -> os.stat_result | None:
    with suppress(OSError):
        return place.stat()
    return None


def _size(place: Path, found: os.stat_result | None) -> int:
    if found is None or not stat.S_ISDIR(found.st_mode):
        return 0 if found is None else found.st_size
    with suppress(OSError), os.scandir(place) as files:
        return sum(each.stat().st_size for each in files)
    return 0


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        return
    with suppress(OSError):
        place.unlink()
