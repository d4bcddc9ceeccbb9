"""The memory and time limits of `fluid infer`.

Buffers whose size follows from shapes are checked at bind time (`runtime.memory.limit`). Values
with data-dependent sizes and NumPy temporaries are allocated during the run: for those the
operating system enforces the limit, on Linux.
"""

from __future__ import annotations

import os
import signal
from _thread import interrupt_main
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from types import FrameType
from typing import NoReturn

import numpy as np

from compiler.ir.model_format.program_desc import load_program
from fluid.cli.layout import ModelFiles
from fluid.cli.model import CommandError
from fluid.framework import Program
from fluid.saving.persistables import is_persistable
from runtime.memory.limit import bytes_text

try:
    import resource
except ImportError:  # not on Unix
    resource = None

SPARE = 256 << 20
"""Bytes allowed in addition to the limit for libraries: threads, generated code."""

_STATM = Path("/proc/self/statm")
_DATA = 5
"""The field of `statm` with the number of data pages."""
_WARM_UP = 1024

_HAS_ALARM = hasattr(signal, "setitimer")


def check_model_size(layout: ModelFiles, limit: int | None) -> None:
    """Raise CommandError if the files of a model are larger than the limit."""
    if limit is None:
        return
    data = layout.program.read_bytes()
    program = load_program(data, str(layout.program), factory=Program)
    names = [var.name for var in program.list_vars() if is_persistable(var)]
    files = [file for file in layout.files(names) if file.is_file()]
    total = sum(file.stat().st_size for file in files)
    if total > limit:
        raise CommandError(
            f"the files of {layout.folder} hold {bytes_text(total)}, more than the memory limit of "
            f"{bytes_text(limit)}: nothing was read"
        )


@contextmanager
def at_most(limit: int | None) -> Generator[None]:
    """Limit this process to `limit` + `SPARE` more bytes of memory; beyond that, MemoryError.

    Does nothing without a limit, and on systems other than Linux.
    """
    if limit is None or resource is None or not _STATM.is_file():
        yield
        return
    _warm_up()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = _data_bytes() + limit + SPARE
    hard = before[1]
    soft = allowed if hard == resource.RLIM_INFINITY else min(allowed, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


class OutOfTime(KeyboardInterrupt):
    """The time limit was exceeded. A KeyboardInterrupt, so that no `except
    Exception` catches it.
    """


@contextmanager
def within(seconds: float | None) -> Generator[None]:
    """Raise OutOfTime here after `seconds`; requires the main thread.

    It is raised between NumPy calls, so a call in progress finishes first. On Windows a read that
    waits for data is not interrupted.
    """
    if seconds is None:
        yield
        return
    with _alarm(seconds) if _HAS_ALARM else _interruption(seconds):
        yield


@contextmanager
def _alarm(seconds: float) -> Generator[None]:
    """Raise OutOfTime by a signal of the system, on Unix."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: _stop(seconds))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _interruption(seconds: float) -> Generator[None]:
    """Raise OutOfTime by a thread that interrupts this one, as Ctrl-C does."""
    before = signal.getsignal(signal.SIGINT)
    expired = Event()

    def interrupt() -> None:
        expired.set()
        interrupt_main()

    def handle(number: int, frame: FrameType | None) -> None:
        if expired.is_set():
            _stop(seconds)
        if callable(before):
            before(number, frame)

    timer = Timer(seconds, interrupt)
    timer.daemon = True
    signal.signal(signal.SIGINT, handle)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def _stop(seconds: float) -> NoReturn:
    raise OutOfTime(f"stopped after {seconds:g} s, the time limit")


def _data_bytes() -> int:
    """The data segment of this process in bytes."""
    fields = _STATM.read_text(encoding="ascii").split()
    return int(fields[_DATA]) * os.sysconf("SC_PAGE_SIZE")


def _warm_up() -> None:
    """Run one matrix product so that BLAS allocates its thread buffers before the limit applies."""
    ones = np.ones((_WARM_UP, _WARM_UP), "float32")
    np.dot(ones, ones)
