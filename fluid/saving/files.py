"""Conversion of user paths, and atomic file writes."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TypeAlias, cast

from runtime.files.atomic_saves import Writer, save_files

__all__ = ["PathName", "as_path", "bytes_writer", "replace_file"]

PathName: TypeAlias = str | PathLike[str]
"""A file or folder name, as users pass it."""


def as_path(given: object, argument: str) -> Path:
    """Convert an argument to a path; raises TypeError for anything else.

    >>> as_path(3, "dirname")
    Traceback (most recent call last):
    TypeError: dirname must be a path, but received 3
    """
    if not isinstance(given, str | PathLike):
        raise TypeError(f"{argument} must be a path, but received {given!r:.60}")
    return Path(cast(PathName, given))


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically, creating its parent folders.

    Raises the errors of `save_files`.
    """
    save_files(path.parent, {path.name: bytes_writer(data)})


def bytes_writer(data: bytes) -> Writer:
    """A function that writes bytes, for `save_files`."""
    return lambda stream: stream.write(data)
