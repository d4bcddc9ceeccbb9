"""Calls in child processes with limits of memory and of time: a crash or a hang ends one call."""

from __future__ import annotations

import math
import multiprocessing
import resource
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Limits:
    """Bytes of address space of a child beyond its parent's, seconds of a call and of the first.

    No call starts after `total_seconds`.
    """

    memory: int = 3 << 30
    seconds: float = 5.0
    first_seconds: float = 60.0
    total_seconds: float = math.inf


def ignore(index: int, result: Any) -> None:
    """Report nothing."""


def call_in_children(
    function: Callable[[int], Any],
    count: int,
    limits: Limits,
    lost: Callable[[int, str], Any],
    workers: int = 2,
    report: Callable[[int, Any], None] = ignore,
) -> list[Any]:
    """Results of `function(0)` … `function(count - 1)`, computed in `workers` child processes.

    Results must be picklable. If the child dies or takes too long the result is `lost(index, why)`,
    and the next call gets a new child. The children are forks, so `function` may be any callable,
    and its imports are done once, before. `report(index, result)` is called as results come, one at
    a time; the results of calls that the limits leave no time for are None.
    """
    results: list[Any] = [None] * count
    lock, end = threading.Lock(), time.monotonic() + limits.total_seconds

    def done(index: int, result: Any) -> None:
        with lock:
            results[index] = result
            report(index, result)

    shares = [range(start, count, workers) for start in range(workers)]
    threads = [
        threading.Thread(target=_drive, args=(function, share, limits, lost, done, end))
        for share in shares
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _drive(
    function: Callable[[int], Any],
    indices: Sequence[int],
    limits: Limits,
    lost: Callable[[int, str], Any],
    done: Callable[[int, Any], None],
    end: float,
) -> None:
    child = _Child(function, limits)
    for index in indices:
        if time.monotonic() >= end:
            break
        try:
            result = child.call(index)
        except _Lost as error:
            result = lost(index, str(error))
            child = _Child(function, limits)
        done(index, result)
    child.end()


class _Lost(Exception):
    """The child ended before it had a result."""


class _Child:
    def __init__(self, function: Callable[[int], Any], limits: Limits) -> None:
        self._limits, self._first = limits, True
        self._pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(
            target=_serve, args=(function, theirs, limits.memory), daemon=True
        )
        self._process.start()
        theirs.close()

    def call(self, index: int) -> Any:
        """The result of a call; _Lost if the child dies or hangs. The first call may import."""
        self._pipe.send(index)
        allowed = self._limits.first_seconds if self._first else self._limits.seconds
        self._first = False
        try:
            if self._pipe.poll(allowed):
                return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise _Lost(f"crash: exit code {self._process.exitcode}") from None
        self._process.kill()
        self._process.join()
        raise _Lost(f"hang: more than {allowed:g} s")

    def end(self) -> None:
        """Let the child return; closing the pipe would not do, since later forks hold it too."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(5)
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(function: Callable[[int], Any], pipe: Connection, memory: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])  # a fork has its parent's
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError):  # of a caller that is gone
        while (index := pipe.recv()) is not None:
            pipe.send(function(index))
