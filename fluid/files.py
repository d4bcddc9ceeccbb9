"""Writing files that appear whole or not at all."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["PathName", "as_path", "replace_file"]

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
    """Write a file, making the folders on its way; until it is whole, an older one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".saving-", dir=path.parent) as folder:
        draft = Path(folder, "draft")
        draft.write_bytes(data)
        draft.replace(path)
