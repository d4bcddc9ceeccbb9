"""The caches of compiled code: where they are, how large, and how to empty them."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from compiler.codegen import module_store
from compiler.codegen.ahead import kernel_cache
from compiler.codegen.native.commands import step_store
from compiler.codegen.triton.tiling import tuning
from compiler.options import Cache
from compiler.support.private_folders import DRAFT, private_folder
from runtime.native import object_cache

__all__ = ["KINDS", "cache_folder", "clear", "nbytes", "unusable"]

ENTRIES: dict[str, re.Pattern[str]] = {
    "modules": module_store.ENTRY, "steps": step_store.ENTRY, "native": object_cache.ENTRY,
    "kernels": kernel_cache.ENTRY, "tiles": tuning.ENTRY,
}  # fmt: skip
"""Modules with folded weights, layers and their code for CPUs, kernels for GPUs, and tiles measured
there: the names of each cache's files and folders."""
KINDS = (*ENTRIES,)


def cache_folder() -> Path:
    """The folder with one folder a kind: `FLUID_CACHE`, or `fluid` in the user's cache folder."""
    return Cache.from_env().folder.parent


def unusable(root: Path) -> str:
    """Why nothing can be cached in a folder, which need not exist; empty if it can be."""
    try:
        there = next(path for path in (root, *root.parents) if path.exists())
    except PermissionError as error:
        return f"{error.filename} cannot be entered"
    if not there.is_dir():
        return f"{there} is a file, not a folder"
    try:
        Path(mkdtemp(prefix=".draft-", dir=there)).rmdir()
    except OSError as error:
        return f"{there} cannot be written to: {error.strerror}"
    return ""


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

    Files and folders that the cache has not written remain. Programs that run meanwhile keep what
    they have mapped, and compile the rest again. Raises NotPrivate if the folder is another user's,
    and OSError if it is a link or cannot be opened.
    """
    place = cache_folder() / kind
    if place.is_symlink():
        raise OSError(errno.ELOOP, "a link, which is not followed to remove files", str(place))
    before = nbytes(place)
    with private_folder(place) as folder:
        for name in folder.names():
            if ENTRIES[kind].fullmatch(name) or DRAFT.fullmatch(name):
                folder.remove(name)
    return before - nbytes(place)
