"""Which calls may occupy a thread of a server: decided from their metadata, before any message.

Members are the sessions that own a trainer's id; each has a number of calls of its own, so that
other peers, together limited too, cannot take its threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.errors import TryAgain

GUESTS = ""
"""The key under which the calls of all peers that are no members are counted."""


@dataclass(frozen=True)
class Limits:
    """Calls at once: of `members` sessions `each`, and of all other peers `guests`, `each` for a
    connection. A call ends that waits for its first message, or for the peer to read an answer, for
    longer than `seconds`. At most `connections` are open.
    """

    members: int = 0
    guests: int = 16
    each: int = 8
    seconds: float = 10.0
    connections: int = 1024

    @property
    def calls(self) -> int:
        """The number of calls at once, in all."""
        return self.members * self.each + self.guests


class Admission:
    """Counts the calls of each session that occupy a thread; any thread may call."""

    def __init__(
        self, limits: Limits, is_member: Callable[[str], bool] = lambda session: False
    ) -> None:
        self.limits, self._is_member = limits, is_member
        self._lock = Lock()
        self._open: Counter[str] = Counter()
        self._total = 0
        self._connections: Counter[str] = Counter()
        self._waiting: dict[Any, float] = {}

    def enter(self, session: str) -> str | None:
        """Count a call of a session; returns the key for `leave`, None if it must be refused."""
        key = session if session and self._is_member(session) else GUESTS
        with self._lock:
            most = self.limits.guests if key == GUESTS else self.limits.each
            if self._open[key] >= most or self._total >= self.limits.calls:
                return None
            self._open[key] += 1
            self._total += 1
        return key

    def leave(self, key: str) -> None:
        """Count the end of a call."""
        with self._lock:
            _decrease(self._open, key)
            self._total -= 1

    @contextmanager
    def connected(self, key: str, connection: str) -> Generator[None]:
        """Count a guest's call for its connection. Raises TryAgain if that has too many."""
        if key != GUESTS:
            yield
            return
        with self._lock:
            if self._connections[connection] >= self.limits.each:
                raise TryAgain(f"a connection has more than {self.limits.each} calls at once")
            self._connections[connection] += 1
        try:
            yield
        finally:
            with self._lock:
                _decrease(self._connections, connection)

    @contextmanager
    def waiting(self, context: Any) -> Generator[None]:
        """The block waits for the peer of a call: `end_late` ends the call after `seconds`."""
        self._waiting[context] = time.monotonic() + self.limits.seconds
        try:
            yield
        finally:
            self._waiting.pop(context, None)

    def end_late(self) -> None:
        """Cancel the calls that have waited too long for their peer; polled by the server."""
        now = time.monotonic()
        for context, end in list(self._waiting.items()):
            if now > end:
                context.cancel()


def _decrease(counts: Counter[str], key: str) -> None:
    """Decrease a count; zero counts are removed, so that the memory is bounded."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
