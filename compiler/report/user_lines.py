"""The users' source lines, if they can be found.

A program records `train.py:12`, or a path relative to its working directory. Lines are read only
from Python files below folders that the caller names: a model may name any file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LARGEST = 4 << 20
"""Maximum bytes of a file that is read."""


class Sources:
    """Lines of Python files below some folders; the first folder that contains the file is used.

    >>> Sources().line("train.py:12")
    ''
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = tuple([folder.resolve() for folder in folders])
        self._files: dict[str, list[str]] = {}

    def line(self, where: str) -> str:
        """Return the text of the line that `file.py:12` refers to, stripped; empty if not found."""
        name, _, number = where.rpartition(":")
        if not name.endswith(".py") or not number.isdecimal():
            return ""
        lines = self._lines(name)
        index = int(number) - 1
        return lines[index].strip() if 0 <= index < len(lines) else ""

    def _lines(self, name: str) -> list[str]:
        if name not in self._files:
            path = next((p for f in self._folders if (p := _inside(f, name)) is not None), None)
            text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
            self._files[name] = text.splitlines()
        return self._files[name]


def _inside(folder: Path, name: str) -> Path | None:
    """Return the file of a name in a folder; None if it is outside the folder, or too large."""
    try:
        path = (folder / name).resolve()
        fits = path.is_relative_to(folder) and path.is_file() and path.stat().st_size <= LARGEST
    except (OSError, ValueError):
        return None
    return path if fits else None
