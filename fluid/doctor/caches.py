"""The caches of compiled code: where they are, how large, and how to empty them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from compiler.options import Cache
from compiler.support.private_folders import private_folder

__all__ = ["KINDS", "cache_folder", "clear", "nbytes"]

KINDS = ("modules", "native", "kernels")
"""Modules with folded weights, machine code for CPUs, and kernels for GPUs."""


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

    Programs that run meanwhile keep what they have mapped, and compile the rest again. Raises
    NotPrivate if the folder is another user's, and OSError if it cannot be opened.
    """
    place = cache_folder() / kind
    before = nbytes(place)
    with private_folder(place) as folder:
        for name in folder.names():
            folder.remove(name)
    return before - nbytes(place)
