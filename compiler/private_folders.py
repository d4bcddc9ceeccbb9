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
    sizes = {
        place: _size(place) for place in sorted(entries, key=lambda each: _used(entries[each]))
    }
    excess = sum(sizes.values()) - limit
    for place, size in sizes.items():
        if excess <= 0:
            return
        _remove(place)
        excess -= size


def _used(file: Path) -> tuple[float, str]:
    """Return the modification time of a file, then its path to break ties."""
    with suppress(OSError):
        return file.stat().st_mtime, str(file)
    return 0.0, str(file)


def _size(place: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    with suppress(OSError):
        files = place.iterdir() if place.is_dir() else [place]
        return sum(file.stat().st_size for file in files)
    return 0


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        return
    with suppress(OSError):
        place.unlink()
