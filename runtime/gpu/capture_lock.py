"""The lock of CUDA graph captures: a process captures one graph at a time.

torch registers each graph in a set without a lock when its capture begins, and removes it when it
is destroyed; CUDA permits neither a second capture on a stream nor a synchronisation of the device
during a capture. Pinned memory that a graph copies to is freed with an event on the stream of its
capture, which a capture of another thread would record. So captures begin and end under this lock,
and graphs and such memory are freed when it is free. Launches, replays, copies and allocations of
other threads go on during a capture: its mode is "thread_local".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock, get_ident

from runtime.forks import renew_in_children

Owned = list[object]
"""The only references to some objects, which are freed when the list is cleared."""


class CaptureLock:
    """A lock around captures, and what is to be freed while nobody has it.

    `broken` is what cannot be freed: graphs whose capture did not begin.
    """

    def __init__(self) -> None:
        self._released: deque[Owned] = deque()
        self.broken: list[Owned] = []
        self._owner = 0
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one."""
        self._lock = Lock()

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the lock."""
        return self._owner == get_ident()

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """A context that one thread at a time is in; it is not reentrant."""
        with self._lock:
            self._owner = get_ident()
            try:
                yield
            finally:
                self._owner = 0
        self._free()

    def release(self, owned: Owned) -> None:
        """Free objects now, or after the capture that is underway.

        The garbage collector calls it in any thread, also in one that captures, so it never waits.
        """
        self._released.append(owned)
        self._free()

    def _free(self) -> None:
        while self._released and self._lock.acquire(blocking=False):
            try:
                while self._released:
                    self._released.popleft().clear()
            finally:
                self._lock.release()


CAPTURES = CaptureLock()
"""The lock of this process."""
