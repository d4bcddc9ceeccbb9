"""Lines of generated modules for tracebacks, in `linecache` while a module is alive.

`linecache` never drops lines that it did not read from a file. The entry of a module that is gone
is removed when the next one is loaded, and not by its finalizer: that may run at any time, such as
while `linecache` iterates over its entries.
"""

from __future__ import annotations

import linecache
import weakref
from collections import deque
from typing import ClassVar


class SourceLines:
    """The lines of one generated source, kept in `linecache` while an instance is alive.

    The module's namespace holds the instance, so tracebacks show lines for as long as one of its
    functions or frames exists. Instances of equal file names are of equal sources.
    """

    _dropped: ClassVar[deque[str]] = deque()
    """File names of instances that are gone since the last one was made."""

    def __init__(self, filename: str, source: str) -> None:
        _remove_unused(self._dropped)
        self.filename = filename
        self.lines = _lines_of(filename) or _Lines(source)
        self.lines.users.add(id(self))
        linecache.cache[filename] = (len(source), None, self.lines, filename)
        weakref.finalize(self, self._drop, filename, self.lines, id(self)).atexit = False

    @classmethod
    def _drop(cls, filename: str, lines: _Lines, user: int) -> None:
        """Count one user less; a finalizer, so it touches nothing of other modules."""
        lines.users.discard(user)
        cls._dropped.append(filename)


class _Lines(list[str]):
    """Lines of a source, and the identities of its users."""

    def __init__(self, source: str) -> None:
        super().__init__(source.splitlines(keepends=True))
        self.users: set[int] = set()


def _lines_of(filename: str) -> _Lines | None:
    """The lines of a generated module in `linecache`, if it has them."""
    entry = linecache.cache.get(filename)
    lines = entry[2] if entry is not None and len(entry) > 2 else None
    return lines if isinstance(lines, _Lines) else None


def _remove_unused(dropped: deque[str]) -> None:
    """Remove the entries of dropped modules that no other instance uses."""
    while dropped:
        try:
            filename = dropped.popleft()
        except IndexError:  # another thread took it
            return
        lines = _lines_of(filename)
        if lines is not None and not lines.users:
            linecache.cache.pop(filename, None)
