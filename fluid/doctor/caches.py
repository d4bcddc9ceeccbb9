"""The caches of compiled code: where they are, how large, and how to empty them."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from compiler.options import Cache
from compiler.support.private_folders import private_folder

__all__ = ["KINDS", "cache_folder", "clear", "nbytes"]

KINDS = ("modules", "native", "kernels", "tiles")
"""Modules with folded weights, code for CPUs, kernels for GPUs, and tiles measured there."""
ENTRY = re.compile(r"[0-9a-f]{64}|\.draft-[0-9a-f]{16}|[\w.-]+-triton-[\w.-]+\.txt$")
"""How names of entries begin: a digest, an unfinished entry, or the tiles of a device."""


def cache_folder() -> Path:
    """The folder with one folder a kind: `FLUID_CACHE`, or `fluid` in the user's cache folder."""
    return Cache.from_env().folder.parent


def nbytes(folder: Path) -> int:
    """The bytes of the files below a folder; a file that vanishes meanwhile counts nothing."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(at, name).lstat().st_size
    return total


def clear(kind: str) -> int:
    """Remove the entries of a cache; returns the bytes that were freed.

    Entries are files and folders whose names begin with a digest, as caches write them; others
    remain. Programs that run meanwhile keep what they have mapped, and compile the rest again.
    Raises NotPrivate if the folder is another user's, and OSError if it is a link or cannot be
    opened.
    """
    place = cache_folder() / kind
    if place.is_symlink():
        raise OSError(errno.ELOOP, "a link, which is not followed to remove files", str(place))
    before = nbytes(place)
    with private_folder(place) as folder:
        for name in folder.names():
            if ENTRY.match(name):
                folder.remove(name)
    return before - nbytes(place)
