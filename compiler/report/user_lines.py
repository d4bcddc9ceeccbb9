"""The users' own lines of code, where they can be found.

A program keeps `train.py:12`, or a path from where it was run. A line is read from a Python file
below a folder that the caller names, and from nowhere else: a model may name any file it likes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LARGEST = 4 << 20
"""Bytes of a file that is read at most."""


class Sources:
    """Lines of Python files below some folders, looked up in the first that has the file.

    >>> Sources().line("train.py:12")
    ''
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = tuple([folder.resolve() for folder in folders])
        self._files: dict[str, list[str]] = {}

    def line(self, where: str) -> str:
        """The text of the line that `file.py:12` names, without indentation; "" if not found."""
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
    """The file that a name means in a folder; None where it is not below it, or too large."""
    try:
        path = (folder / name).resolve()
        fits = path.is_relative_to(folder) and path.is_file() and path.stat().st_size <= LARGEST
    except (OSError, ValueError):
        return None
    return path if fits else None
