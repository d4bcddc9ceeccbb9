"""Lines of generated modules for tracebacks, in `linecache` while a module is alive.

`linecache` never drops lines that it did not read from a file. The lines of a module are freed
together with the last instance of its name; the entry, which is then empty, is removed when the
next module is loaded: a finalizer may run while `linecache` iterates over its entries.
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
        _remove_unused()
        self.filename = filename
        entry = linecache.cache.get(filename)
        lines = entry[2] if entry is not None and len(entry) > 2 else None
        self.lines = lines if isinstance(lines, _Lines) else _Lines(source)
        self.lines.users.add(self)
        linecache.cache[filename] = (len(source), None, self.lines, filename)
        weakref.finalize(self, _free, self.lines).atexit = False


class _Lines(list[str]):
    """Lines of a source and its users."""

    def __init__(self, source: str) -> None:
        super().__init__(source.splitlines(keepends=True))
        self.users: weakref.WeakSet[SourceLines] = weakref.WeakSet()

    def is_unused(self) -> bool:
        """Whether no module with these lines is alive."""
        return not any(True for _ in self.users)


def _free(lines: _Lines) -> None:
    """Free lines that no module uses any longer."""
    if lines.is_unused():
        lines.clear()


def _remove_unused() -> None:
    """Remove the entries of modules that are gone."""
    for filename, entry in list(linecache.cache.items()):
        lines = entry[2] if len(entry) > 2 else None
        if isinstance(lines, _Lines) and lines.is_unused():
            linecache.cache.pop(filename, None)
