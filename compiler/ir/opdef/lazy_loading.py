"""Modules that are imported when they are first needed, and a registry that one of them fills.

A process that only runs compiled modules, as a worker of a pool does, never imports the ops.

`os.fork` waits until such imports have ended. A child has only the thread that forked: where
another thread was in the middle of an import, the child would wait for it for ever.
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition, RLock, get_ident
from typing import TypeVar

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
