"""Heartbeats of a trainer, from a separate thread over separate channels.

The first heartbeat claims the trainer's id at a server, and a call that lasts as long as this
process keeps it there: no other process can be this trainer meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.peers import RETRY_SECONDS, Peers


class Heartbeats:
    """Sends heartbeats to servers; `lose` is called for one that does not answer."""

    def __init__(
        self, caller: Caller, settings: Settings, lose: Callable[[str, str], None]
    ) -> None:
        self._settings, self._lose = settings, lose
        self._peers = Peers(settings, caller)
        self._seen: dict[str, float] = {}
        self._holds: dict[str, Any] = {}
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, endpoint: str) -> None:
        """Claim the trainer's id at a server, and start heartbeats. Raises WireError if it does
        not answer, or another process keeps the id.
        """
        self._peers.beat(endpoint, self._settings.reconnect)
        self._hold(endpoint)
        self._seen[endpoint] = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fluid-ps-beats")
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(1.0)
        self._peers.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._woken.wait(self._settings.heartbeat) and self._ended.wait(RETRY_SECONDS):
                return
            self._woken.clear()
            for endpoint in list(self._seen):
                self._beat(endpoint)

    def _hold(self, endpoint: str) -> None:
        """Keep the id at a server; when the call ends, the thread wakes to repeat it."""
        self._holds[endpoint] = self._peers.hold(endpoint)
        self._holds[endpoint].add_done_callback(self._wake)

    def _wake(self, future: Any) -> None:
        self._woken.set()

    def _beat(self, endpoint: str) -> None:
        seconds = min(self._settings.heartbeat, self._settings.lost_after)
        try:
            self._peers.beat(endpoint, seconds)
            self._seen[endpoint] = time.monotonic()
            if self._holds[endpoint].done():
                self._hold(endpoint)
        except ValueError as error:  # also raised by a channel that was closed meanwhile
            if self._ended.is_set():
                return
            if not isinstance(error, WireError):
                raise
            silent = time.monotonic() - self._seen[endpoint]
            if silent > max(self._settings.reconnect, self._settings.lost_after):
                why = f"server {endpoint} did not respond for {silent:.0f} s"
                self._lose(endpoint, why)
