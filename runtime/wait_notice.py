"""A line about a wait for other processes that lasts, so that nobody wonders what a job does."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

FIRST_SECONDS = 5.0
"""Seconds after which a wait is reported; it is again whenever it has lasted twice as long."""


class WaitNotice:
    """Reports one wait of at most `limit` seconds, or without a limit; `warn` writes a line."""

    def __init__(self, warn: Callable[[str], None], limit: float | None) -> None:
        self._warn, self._limit = warn, limit
        self._begin = monotonic()
        self._next = FIRST_SECONDS

    def tick(self, awaited: Callable[[], str]) -> None:
        """Write what is awaited, if it is time to.

        >>> notice = WaitNotice(print, 180)
        >>> notice.tick(lambda: "rank 1")
        >>> notice._begin -= 7
        >>> notice.tick(lambda: "rank 1")
        waits for rank 1: 7 s of 180 s
        """
        waited = monotonic() - self._begin
        if waited >= self._next:
            self._next = 2 * waited
            most = "" if self._limit is None else f" of {self._limit:g} s"
            self._warn(f"waits for {awaited()}: {waited:.0f} s{most}")
