"""The thread pool of native code: one for each process, started when it is first needed.

Its workers are Python threads that spend their lives in the executor's `worker`, without Python's
lock: they look for work for a moment after the last, then sleep. A forked child starts workers of
its own when it needs them; at exit they are told to return.

Sharing a command with a worker that is awake takes 50 ns, calling a sequence from Python 360 ns
(`python -m bench.native_calls`). A pool of Python's would take the lock for every command.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path
from threading import Lock, Thread

from compiler.errors import CompileError
from compiler.support.settings.paddle import CPU_NUM
from compiler.support.settings.setting import Environ
from compiler.support.settings.systems import OMP_NUM_THREADS
from runtime.forks import renew_in_children
from runtime.native.executor import NativeExecutor, ticks_per_second

VARIABLES = (CPU_NUM, OMP_NUM_THREADS)
"""Environment variables that limit the number of threads; the first that is set is used."""
MOST = 64
"""Most threads of the pool."""

WORKER_PATIENCE = 200e-6
"""Seconds that an idle worker looks for work before it sleeps."""
CALLER_PATIENCE = 50e-6
"""Seconds that a caller looks whether workers have finished before it sleeps."""
SLACK = 20e-6
"""Seconds that a caller may wait for workers without counting it as a stall."""
MOST_EARNED = 1e-3
"""Seconds of waiting for workers that sharing may pay for in advance."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time in each period, and the period; of a container on Linux."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
"""Linux's number of the system call futex."""
_PLACING = ("getcpu", "getaffinity", "setaffinity")
"""Linux's functions `sched_…` by which threads choose their CPUs."""
_HEAD, _LINE = 1024, 128
_CALLERS, _HOLDER, _SLEEPING, _SLEEPERS, _STOP = 128, 136, 388, 512, 520
_STARTED, _SETTINGS = 640, 648
"""Offsets in the pool's memory, see compiler/codegen/native/executor.ll."""


def available(environ: Environ = None) -> int:
    """The number of threads that may run: one for each processor, or fewer if limited.

    Processors are those of this thread's affinity and of the container's quota. Raises CompileError
    if a variable is not a positive number.
    """
    if _library_address("usleep") == 0:
        return 1
    variable = next((each for each in VARIABLES if each.is_set(environ)), CPU_NUM)
    limits = (_processors(), _quota(), variable.read(environ, CompileError), MOST)
    return min(limit for limit in limits if limit is not None)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota() -> int | None:
    """The processors' worth of time that a container may use, at least 1; None without limit."""
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no limit
        return None


class ThreadPool:
    """Threads that share the units of commands with the thread that runs a sequence.

    `address` is that of its memory, which the executor reads and writes; it is never freed.
    """

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_HEAD + _LINE * (MOST + 1))
        base = ctypes.addressof(self._memory)
        self.address = -(-base // _LINE) * _LINE
        self._threads: list[Thread] = []
        self._closed = False
        self._stop: NativeExecutor | None = None
        self.renew_locks()
        renew_in_children(self)

    @property
    def workers(self) -> int:
        """The number of workers that were started."""
        return self._word(_STARTED).value

    @property
    def steps(self) -> int:
        """The number of commands that were shared so far, modulo 2³²."""
        return self._word(0).value

    def start(self, executor: NativeExecutor, count: int | None = None) -> None:
        """Start workers until the threads are `count` with the caller, by default `available`.

        There are fewer where the system allows no more threads.
        """
        with self._lock:
            wanted = (available() if count is None else min(count, MOST)) - 1
            if self._closed or wanted <= len(self._threads):
                return
            self._set_up(executor)
            try:
                for number in range(len(self._threads) + 1, wanted + 1):
                    self._threads.append(_started(executor, self.address, number))
            except RuntimeError:
                self._closed = True
            self._word(_STARTED).value = len(self._threads)

    def stop(self) -> None:
        """Make the workers return, and wait for them; none is started later."""
        with self._lock:
            self._closed = True
            self._word(_STARTED).value = 0
            if self._stop is not None:
                self._stop.stop(self.address)
            for worker in self._threads:
                worker.join()
            self._threads.clear()

    def renew_locks(self) -> None:
        """Forget the workers, of which a forked child has none, and what they were doing."""
        self._lock = Lock()
        self._threads.clear()
        for offset in (_CALLERS, _HOLDER, _SLEEPERS, _STOP, _STARTED):
            self._word(offset).value = 0
        ctypes.c_int32.from_address(self.address + _SLEEPING).value = 0

    def _set_up(self, executor: NativeExecutor) -> None:
        """Write the settings that the executor reads."""
        self._stop = executor
        rate = ticks_per_second(executor)
        futex = _FUTEX.get(platform.machine(), 0) if sys.platform == "linux" else 0
        settings = (
            int(WORKER_PATIENCE * rate),
            int(CALLER_PATIENCE * rate),
            _library_address("syscall") if futex else 0,
            futex,
            _library_address("usleep"),
            int(MOST_EARNED * rate),
            *(_library_address(f"sched_{function}") for function in _PLACING),
            int(SLACK * rate),
        )
        for place, number in enumerate(settings):
            self._word(_SETTINGS + 8 * place).value = number

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + offset)


def _started(executor: NativeExecutor, pool: int, number: int) -> Thread:
    """Start a worker; RuntimeError if there are too many threads."""
    name = f"fluid-native-{number}"
    worker = Thread(target=executor.worker, args=(pool, number), name=name, daemon=True)
    worker.start()
    return worker


@cache
def pool() -> ThreadPool:
    """The pool of this process."""
    created = ThreadPool()
    atexit.register(created.stop)
    return created


def _library_address(name: str) -> int:
    """The address of a function of the C library; 0 if it has none of that name."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except (AttributeError, TypeError, OSError):
        return 0
