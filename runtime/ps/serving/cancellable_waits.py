"""Cancellable waits within a client's call: they end with the call or the server."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Event
from typing import Any


def ending(context: Any, changed: Condition) -> Callable[[], bool]:
    """Return a predicate for whether a call has ended; its end notifies `changed`."""
    ended = Event()

    def end() -> None:
        ended.set()
        with changed:
            changed.notify_all()

    if not context.add_callback(end):
        ended.set()
    return ended.is_set
