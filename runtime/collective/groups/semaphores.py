"""POSIX semaphores in shared memory: counters for which threads of several processes wait.

They have no names, so that nothing is left of them, and a post makes what was written before it
visible to whoever takes it, on every processor: no other memory barriers are needed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from time import clock_gettime
from typing import Any

from runtime.errors import CollectiveError

STRIDE = 64
"""Bytes of a semaphore: a cache line of its own. A `sem_t` has 32 on 64-bit systems."""

CLOCK_REALTIME = 0
"""The clock of `sem_timedwait`."""


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _functions() -> tuple[Any, Any, Any, Any]:
    """The functions `sem_init`, `sem_post`, `sem_trywait` and `sem_timedwait` of the C library.

    Only the last one waits, so the others keep Python's lock.
    """
    quick, waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
    quick.sem_init.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
    quick.sem_post.argtypes = quick.sem_trywait.argtypes = (ctypes.c_void_p,)
    waiting.sem_timedwait.argtypes = ctypes.c_void_p, ctypes.POINTER(_TimeSpec)
    return quick.sem_init, quick.sem_post, quick.sem_trywait, waiting.sem_timedwait


class Semaphore:
    """A semaphore at an address of memory that several processes share."""

    def __init__(self, address: int) -> None:
        self._address = ctypes.c_void_p(address)
        self._init, self._post, self._try_take, self._timed_take = _functions()

    def initialise(self, value: int) -> None:
        """Set the counter, before any process uses it."""
        if self._init(self._address, 1, value):
            raise CollectiveError("this system has no semaphores in shared memory")

    def post(self) -> None:
        """Increment the counter, which wakes one that waits."""
        self._post(self._address)

    def try_take(self) -> bool:
        """Decrement the counter if it is above 0; return whether it was."""
        return not self._try_take(self._address)

    def take(self, seconds: float) -> bool:
        """Decrement the counter, waiting at most `seconds`; False if it was 0 all the time.

        A signal ends the wait early. The system's clock measures it, so setting that makes a wait
        longer or shorter.
        """
        if self.try_take():
            return True
        end = clock_gettime(CLOCK_REALTIME) + seconds
        until = _TimeSpec(int(end), int(end % 1.0 * 1e9))
        return not self._timed_take(self._address, ctypes.byref(until))
