"""Removed names of modules of Python, and their replacements."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from fluid.compat.old_python.notices import Notices

__all__ = ["GONE", "Gone", "with_names"]


class Gone:
    """A removed name: the release that removed it, how to write it, and where its value is.

    `home` is `module:attribute`, or `module:` for a module; it is imported when the name is used.
    """

    __slots__ = ("home", "instead", "since")

    def __init__(self, since: str, instead: str, home: str) -> None:
        self.since, self.instead, self.home = since, instead, home

    def value(self) -> object:
        """Return what the name had as its value.

        >>> Gone("Python 3.8", "time.process_time", "time:process_time").value().__name__
        'process_time'
        """
        module, _, name = self.home.partition(":")
        value: object = import_module(module)
        for part in name.split(".") if name else ():
            value = getattr(value, part)
        return value


ABSTRACT_CLASSES = """
    Awaitable Coroutine AsyncIterable AsyncIterator AsyncGenerator Hashable Iterable Iterator
    Generator Reversible Sized Container Callable Collection Set MutableSet Mapping MutableMapping
    MappingView KeysView ItemsView ValuesView Sequence MutableSequence ByteString
""".split()
_HERE = "fluid.compat.old_python"

GONE: dict[str, dict[str, Gone]] = {
    "collections": {
        name: Gone("Python 3.10", f"collections.abc.{name}", f"collections.abc:{name}")
        for name in ABSTRACT_CLASSES
    },
    "time": {"clock": Gone("Python 3.8", "time.process_time", "time:process_time")},
    "inspect": {
        "getargspec": Gone("Python 3.11", "inspect.getfullargspec", f"{_HERE}.argspec:getargspec")
    },
    "string": {
        "letters": Gone("Python 3", "string.ascii_letters", "string:ascii_letters"),
        "lowercase": Gone("Python 3", "string.ascii_lowercase", "string:ascii_lowercase"),
        "uppercase": Gone("Python 3", "string.ascii_uppercase", "string:ascii_uppercase"),
        "maketrans": Gone("Python 3", "str.maketrans", "builtins:str.maketrans"),
    },
    "fractions": {"gcd": Gone("Python 3.9", "math.gcd", "math:gcd")},
    "base64": {
        "encodestring": Gone("Python 3.9", "base64.encodebytes", "base64:encodebytes"),
        "decodestring": Gone("Python 3.9", "base64.decodebytes", "base64:decodebytes"),
    },
}
"""What is gone, by the module that had it."""


def with_names(module: ModuleType, gone: dict[str, Gone], notices: Notices) -> None:
    """Add names to a module that former versions of it had."""
    before = vars(module).get("__getattr__")

    def missing(name: str) -> object:
        entry = gone.get(name)
        if entry is not None:
            value = entry.value()
            notices.tell(f"{module.__name__}.{name}", entry.since, entry.instead)
            return value
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    vars(module)["__getattr__"] = missing
