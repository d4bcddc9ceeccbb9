"""`os.fork` waits for what other threads must not be interrupted in: imports, calls of libraries.

A child has only the thread that forked. A lock that another thread held, of an import, of llvmlite
or of OpenBLAS, would stay locked in it for ever; and objects of another thread's frames are freed
in the child before any hook can replace their locks.
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition, get_ident

FORK_WAITS = 10.0
"""Maximum seconds that a fork waits for other threads."""

FORK_LOCK = Condition()
"""Held during a fork: to be held for calls of microseconds; `delay_forks` is for longer ones."""
_delaying: Counter[int] = Counter()
"""Number of blocks that each thread is in."""


@contextmanager
def delay_forks() -> Generator[None]:
    """Let forks by other threads wait until the end of the block."""
    thread = get_ident()
    with FORK_LOCK:
        _delaying[thread] += 1
    try:
        yield
    finally:
        with FORK_LOCK:
            _delaying[thread] -= 1
            if not _delaying[thread]:
                del _delaying[thread]
            FORK_LOCK.notify_all()


def _before_fork() -> None:
    """Wait for the blocks of other threads; none starts until `_after_fork`."""
    thread = get_ident()
    FORK_LOCK.acquire()
    FORK_LOCK.wait_for(lambda: not any(other != thread for other in _delaying), FORK_WAITS)


def _after_fork() -> None:
    FORK_LOCK.release()


# Hooks run in reverse order of registration, so these take their locks, which imports may
# need, after ours.
_REGISTERED_BEFORE = logging, concurrent.futures.thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
