"""Whether a cache of compiled code belongs to its user alone, and how it is kept small.

The code in a cache is executed as it is found there. That is sound in a folder that only its user
can write to, who could as well change the program. The digests in a cache detect damage, not
malice, since whoever can write the code can write its digest too.
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
"""The mode of folders that are made here: nobody else reads or writes them."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(folder: Path, variable: str) -> bool:
    """Whether code from a cache folder may be executed; the folder is made where it is missing.

    It has to belong to this user, and nobody else may write to it, or replace it in the folder
    around it. Warns with the reason where that is not so; `variable` is the name of the environment
    variable that chooses another cache.
    """
    try:
        for place in (folder.parent, folder):
            place.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        reason = _reason_around(folder.parent) or _reason(folder)
    except OSError:
        return True  # it holds nothing and will keep nothing
    if reason:
        hint = f"set {variable} to a folder of your own, or make this one yours alone (chmod go-w)"
        text = f"compiled code in {folder} is neither used nor kept: {reason}; {hint}"
        warnings.warn(text, stacklevel=2)
    return not reason


def _reason_around(place: Path) -> str:
    """Why others can replace a folder in this one; empty where it is sticky, as /tmp is."""
    found = place.stat()
    if found.st_uid == 0 and found.st_mode & stat.S_ISVTX:
        return ""
    return _reason(place)


def _reason(place: Path) -> str:
    """Why the files in a folder may be somebody else's; empty where they cannot be."""
    found = place.stat()
    if found.st_uid != os.geteuid():
        return f"{place} belongs to the user {found.st_uid}, not to you ({os.geteuid()})"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write to {place}, its mode is {stat.S_IMODE(found.st_mode):o}"
    return ""


def trim(entries: Mapping[Path, Path], limit: int) -> None:
    """Remove the least recently used entries until the others take `limit` bytes at most.

    An entry is a file or a folder of files, given with the file whose time is that of its last use.
    One that another process removes meanwhile counts as empty; one that cannot be removed remains.
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
    """The time of a file, and its path for those of one time."""
    with suppress(OSError):
        return file.stat().st_mtime, str(file)
    return 0.0, str(file)


def _size(place: Path) -> int:
    """The bytes of a file, or of the files in a folder."""
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
