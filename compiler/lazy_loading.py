"""Modules that are imported when they are first needed, and a registry that one of them fills.

A process that only runs compiled modules, as a worker of a pool does, never imports the ops; one
that trains alone never imports what connects it to others. A package whose names are in several
files, of which most users need few, says where they are by `lazy_names`.

`os.fork` waits until such imports have ended. A child has only the thread that forked: where
another thread was in the middle of an import, the child would wait for it for ever.
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Condition, RLock, get_ident
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
FORK_WAITS = 10.0
"""Seconds that a fork waits for imports of other threads at most."""

_LATER: list[Callable[[], object]] = []
_FILLING = RLock()
_changed = Condition()
_loading: Counter[int] = Counter()
"""How many imports are under way, by the thread."""


def load(imported: Callable[[], T]) -> T:
    """What `imported`, which imports a module, returns; `os.fork` waits for it."""
    with _forks_wait():
        return imported()


def lazy_names(
    module: str, homes: Mapping[str, str], otherwise: Callable[[str], NoReturn] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a module whose names are loaded at their first use.

    `homes` has the names by the module that defines them, with spaces between; those of `module`
    itself are the modules below it. `otherwise` raises the AttributeError for any other name.
    """
    known = {name: home for home, names in homes.items() for name in names.split()}

    def getattr_(name: str) -> Any:
        if name not in known:
            if otherwise is not None:
                otherwise(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = load(lambda: _named(module, known[name], name))
        setattr(sys.modules[module], name, found)
        return found

    return getattr_, lambda: sorted({*vars(sys.modules[module]), *known})


def _named(module: str, home: str, name: str) -> Any:
    """A name of its home, or the module of that name below `module`."""
    if home == module:
        return import_module(f"{module}.{name}")
    return getattr(import_module(home), name)


def fill_later(fill: Callable[[], object]) -> None:
    """Call `fill`, which registers ops, when one that is not known is first looked up."""
    _LATER.append(fill)


def filled(registry: T) -> T:
    """The registry, once what was put off is in it; another thread waits until that is done."""
    with _forks_wait(), _FILLING:
        while _LATER:
            fill = _LATER.pop()
            try:
                fill()
            except BaseException:
                _LATER.append(fill)
                raise
    return registry


@contextmanager
def _forks_wait() -> Generator[None]:
    """Keep other threads from forking within the block."""
    thread = get_ident()
    with _changed:
        _loading[thread] += 1
    try:
        yield
    finally:
        with _changed:
            _loading[thread] -= 1
            if not _loading[thread]:
                del _loading[thread]
            _changed.notify_all()


def _before_fork() -> None:
    """Wait for imports of other threads; none begins until `_after_fork`."""
    thread = get_ident()
    _changed.acquire()
    _changed.wait_for(lambda: not any(each != thread for each in _loading), FORK_WAITS)


def _after_fork() -> None:
    _changed.release()


# What is registered last is called first: their locks, which imports may need, are taken later.
_REGISTERED_BEFORE = logging, concurrent.futures.thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
