"""Heartbeats of a trainer, from a separate thread over separate channels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.wire.peers import Peers


class Watch:
    """Sends heartbeats to servers; `lose` is called for one that does not answer."""

    def __init__(self, trainer: int, settings: Settings, lose: Callable[[str, str], None]) -> None:
        self._trainer, self._settings, self._lose = trainer, settings, lose
        self._peers = Peers(settings)
        self._seen: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, endpoint: str) -> None:
        """Start heartbeats for a server."""
        self._seen[endpoint] = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fluid-ps-beats")
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(1.0)
        self._peers.close()

    def _run(self) -> None:
        while not self._ended.wait(self._settings.heartbeat):
            for endpoint in list(self._seen):
                self._beat(endpoint)

    def _beat(self, endpoint: str) -> None:
        seconds = min(self._settings.heartbeat, self._settings.lost_after)
        try:
            self._peers.call(endpoint, {"do": "beat", "trainer": self._trainer}, seconds=seconds)
            self._seen[endpoint] = time.monotonic()
        except ValueError as error:  # also raised by a channel that was closed meanwhile
            if self._ended.is_set():
                return
            if not isinstance(error, WireError):
                raise
            silent = time.monotonic() - self._seen[endpoint]
            if silent > max(self._settings.reconnect, self._settings.lost_after):
                why = f"server {endpoint} did not respond for {silent:.0f} s"
                self._lose(endpoint, why)
