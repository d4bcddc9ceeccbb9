"""Lines of generated modules for tracebacks, in `linecache` while a module is alive.

`linecache` never drops lines that it did not read from a file, so each entry is removed here
together with the last module of its name.
"""

from __future__ import annotations

import linecache
import weakref


class SourceLines:
    """The lines of one generated source, kept in `linecache` while an instance is alive.

    The module's namespace holds the instance, so tracebacks show lines for as long as one of its
    functions or frames exists. Instances of equal file names are of equal sources.
    """

    def __init__(self, filename: str, source: str) -> None:
        self.filename = filename
        entry = linecache.cache.get(filename)
        lines = entry[2] if entry is not None and len(entry) > 2 else None
        self.lines = lines if isinstance(lines, _Lines) else _Lines(source)
        self.lines.users.add(self)
        linecache.cache[filename] = (len(source), None, self.lines, filename)
        weakref.finalize(self, _drop, filename, self.lines).atexit = False


class _Lines(list[str]):
    """Lines of a source and its users."""

    def __init__(self, source: str) -> None:
        super().__init__(source.splitlines(keepends=True))
        self.users: weakref.WeakSet[SourceLines] = weakref.WeakSet()


def _drop(filename: str, lines: _Lines) -> None:
    """Remove an unused entry of `linecache`."""
    if not any(True for _ in lines.users):
        linecache.cache.pop(filename, None)
