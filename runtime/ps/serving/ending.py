"""Waiting within a call of a client: the end of the call, or of the server, ends the waiting."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Event
from typing import Any


def ending(context: Any, changed: Condition) -> Callable[[], bool]:
    """A function that says whether a call has ended; its end wakes who waits for `changed`."""
    ended = Event()

    def end() -> None:
        ended.set()
        with changed:
            changed.notify_all()

    if not context.add_callback(end):
        ended.set()
    return ended.is_set
