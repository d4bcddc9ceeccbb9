"""Waiting in slices of a tenth of a second, so that Ctrl-C and failures of other ranks are noticed.

Calls into torch.distributed may block past their own timeouts, for example if another server
listens on the port of the store. They run in a daemon thread, while the caller waits for it in
slices. If one returns during interpreter shutdown, C++ aborts the process: so process exit waits
seconds for abandoned calls, and requests that can be polled are not made as blocking calls.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from threading import Thread
from time import monotonic, sleep
from typing import TypeVar

from compiler.support.settings.paddle import FLAGS_rpc_deadline
from runtime.errors import CollectiveError
from runtime.wait_notice import WaitNotice

SLICE = 0.1
"""Seconds between two checks of the other ranks."""

MAX_SLICE = 1.0
"""Maximum seconds counted for one slice: time while the process was suspended is not waiting."""

PAUSE = 0.02
"""Maximum polling interval, in seconds."""

MAX_SKIPS = 32
"""Waits that do not poll, after several that polled in vain."""

CALL = "collective call"
"""The name of threads that call the engine."""

ENDING = 5.0
"""Seconds that process exit waits for abandoned calls."""

LOGGER = logging.getLogger("fluid.collective")
"""Lines about waits; Python shows warnings on stderr."""

T = TypeVar("T")


def rpc_deadline() -> float:
    """Seconds that a rank waits for the others: `FLAGS_rpc_deadline`, in milliseconds, or 180 s.

    Raises CollectiveError if the variable is not a positive number.
    """
    return FLAGS_rpc_deadline.read(error=CollectiveError) / 1000


def notice(rank: int, limit: float) -> WaitNotice:
    """The notices of one wait of a rank for others."""
    return WaitNotice(lambda text: LOGGER.warning("rank %d %s", rank, text), limit)


class Spin:
    """Polls for at most `seconds` before a wait sleeps, as long as that pays.

    Waking a sleeping core costs more than a short wait does. On a busy machine the other process
    may have no core, and polling takes one from it: after polling in vain, 1, 2, 4 and up to
    `MAX_SKIPS` waits do not poll.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._skips = 0
        self._left = 0

    def poll(self, is_ready: Callable[[], bool], limit: float) -> bool:
        """Poll until `is_ready` or a limit in seconds has passed; return whether it is ready."""
        if is_ready():
            return True
        seconds = min(self._seconds, limit)
        if seconds <= 0.0 or self._left:
            self._left = max(self._left - 1, 0)
            return False
        end = monotonic() + seconds
        while monotonic() < end:
            if is_ready():
                self._skips = 0
                return True
        self._skips = self._left = min(2 * self._skips or 1, MAX_SKIPS)
        return False


class Stopwatch:
    """Seconds waited so far; time while this process was suspended does not count."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._last = monotonic()

    def tick(self) -> float:
        """Seconds since the last tick, `MAX_SLICE` at most, added to `elapsed`."""
        now = monotonic()
        passed = min(now - self._last, MAX_SLICE)
        self._last = now
        self.elapsed += passed
        return passed


def call_in_slices(function: Callable[[], T], check: Callable[[], None]) -> T:
    """Call `function` in a daemon thread; `check` runs in every slice, and may raise.

    If `check` raises, the thread is abandoned: it may be blocked forever.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    thread = Thread(target=work, daemon=True, name=CALL)
    thread.start()
    while True:
        thread.join(SLICE)
        if not thread.is_alive():
            break
        check()
    if errors:
        raise errors[0]
    return results[0]


def poll_in_slices(function: Callable[[], bool], check: Callable[[], None]) -> None:
    """Call `function` until it returns True; `check` runs in every slice, and may raise."""
    pause, looked = PAUSE / 64, monotonic()
    while not call_in_slices(function, check):
        sleep(pause)
        pause = min(2 * pause, PAUSE)
        if monotonic() - looked > SLICE:
            check()
            looked = monotonic()


@atexit.register
def _await_calls() -> None:
    """Wait for abandoned calls to return, while the interpreter still runs."""
    end = monotonic() + ENDING
    for thread in threading.enumerate():
        if thread.name == CALL:
            thread.join(max(end - monotonic(), 0.0))
