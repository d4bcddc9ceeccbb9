"""Paths as users give them, and writing a file that appears whole or not at all."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from runtime.files.atomic_saves import Writer, save_files

__all__ = ["PathName", "as_path", "bytes_writer", "replace_file"]

PathName = str | PathLike[str]
"""A file or a folder, as users name it."""


def as_path(given: Any, argument: str) -> Path:
    """A path that users gave as an argument; TypeError for what is none.

    >>> as_path(3, "dirname")
    Traceback (most recent call last):
    TypeError: dirname must be a path, but received 3
    """
    if not isinstance(given, str | PathLike):
        raise TypeError(f"{argument} must be a path, but received {given!r:.60}")
    return Path(given)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, making the folders on its way; until it is whole, an older one stays.

    Raises what `save_files` does.
    """
    save_files(path.parent, {path.name: bytes_writer(data)})


def bytes_writer(data: bytes) -> Writer:
    """A function that writes bytes, for `save_files`."""
    return lambda stream: stream.write(data)
