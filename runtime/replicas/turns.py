"""Turns: tasks of several ranks in threads of their own, of which only a few run at a time.

A task keeps its turn until it ends or waits for other tasks. With one turn, tasks alternate: no
two threads ever wait for Python's lock, so a change of turns costs microseconds. With more turns,
tasks run at the same time wherever they release that lock.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

from runtime.errors import ScheduleError
from runtime.forks import renew_in_children

ENDING = 1.0
"""Seconds that a failed run waits for tasks that are still computing."""

POLL = 0.002
"""Interval in seconds at which it looks whether they have ended."""

Task = Callable[[], Any]


class Stopped(BaseException):
    """Ends a task because another one failed; no `except Exception` may catch it."""


class TaskFailed(Exception):
    """The task of a rank raised an error."""

    def __init__(self, rank: int, error: BaseException) -> None:
        super().__init__(rank, error)
        self.rank = rank
        self.error = error


class Turns:
    """Runs a task for each of `size` ranks: that of rank 0 in the caller's thread, others in
    threads that are started by the first run and kept until `close`.

    After a run that failed, threads may still compute, so that another object is needed.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """Forget the threads, which do not exist in the child of a fork."""
        self.lock = Lock()
        self._threads: list[Thread] = []
        self._wakes = [_locked() for _ in range(self._size)]
        self._all_ended = _locked()
        self._tasks: Sequence[Task | None] = ()
        self._results: list[Any] = []
        self._ready: deque[int] = deque()
        self._paused: set[int] = set()
        self._unfinished = 0
        self._taken = self._width = 0
        self._failure: TaskFailed | None = None
        self._has_failed = False
        self._is_closed = False

    def run(self, tasks: Sequence[Task | None], width: int = 1) -> list[Any]:
        """Run the tasks, `width` at a time, those of lower ranks first; return their results, by
        rank: None for a rank without a task.

        Raises the error of task 0 as it is, and TaskFailed for one of another task.
        """
        if not self._threads:
            self._start()
        self._tasks, self._results = tasks, [None] * self._size
        others = [rank for rank in range(1, self._size) if tasks[rank] is not None]
        self._ready.extend(others)
        self._unfinished, self._width, self._taken = 1 + len(others), width, 1
        try:
            with self.lock:
                self._hand_out()
            if not self._work(0) and not self._has_failed:
                self._all_ended.acquire()
        except BaseException as error:  # noqa: BLE001 - Ctrl-C, raised again below
            self._fail(0, error)
        results, self._results, self._tasks = self._results, [], ()
        if self._has_failed:
            self._await_rest()
        failure, self._failure = self._failure, None  # its traceback holds the caller's frames
        if failure is not None:
            raise failure if failure.rank else failure.error
        return results

    def close(self) -> None:
        """End the threads, of which those that compute end afterwards."""
        self._is_closed = True
        for rank in range(1, 1 + len(self._threads)):
            if self._wakes[rank].locked():
                self._wakes[rank].release()
        self._threads = []

    # Called by tasks

    def pause(self, rank: int) -> None:
        """Give up the turn of a rank until another one passes it to `resume`.

        The caller holds `lock`, which is free afterwards. Raises Stopped if a task failed.
        """
        try:
            if self._has_failed:
                raise Stopped
            self._paused.add(rank)
            self._taken -= 1
            self._hand_out()
        finally:
            self.lock.release()
        self._wakes[rank].acquire()
        if self._has_failed:
            raise Stopped

    def resume(self, ranks: Sequence[int]) -> None:
        """Let paused ranks take turns again. The caller holds `lock`."""
        self._paused.difference_update(ranks)
        self._ready.extend(ranks)
        self._hand_out()

    # Threads

    def _start(self) -> None:
        for rank in range(1, self._size):
            name = f"replica {rank}"
            thread = Thread(target=self._serve, args=(rank,), daemon=True, name=name)
            self._threads.append(thread)
            thread.start()

    def _serve(self, rank: int) -> None:
        wake = self._wakes[rank]
        with suppress(Stopped):
            while wake.acquire() and not self._is_closed:
                if self._work(rank):
                    self._all_ended.release()

    def _work(self, rank: int) -> bool:
        """Run the task of a rank; return whether it was the last one to end."""
        task = self._tasks[rank] if rank < len(self._tasks) else None
        try:
            if task is not None and not self._has_failed:
                self._results[rank] = task()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._fail(rank, error)
        with self.lock:
            self._unfinished -= 1
            self._taken -= 1
            self._hand_out()
            return not self._unfinished

    def _hand_out(self) -> None:
        """Wake ready ranks while there are turns; an error if all wait for each other."""
        while self._ready and self._taken < self._width:
            self._taken += 1
            self._wakes[self._ready.popleft()].release()
        if not self._taken and self._paused:
            self._record(min(self._paused), self._nobody_left())
            self._hand_out()

    def _nobody_left(self) -> ScheduleError:
        waiting = ", ".join(map(str, sorted(self._paused)))
        return ScheduleError(
            f"rank {waiting} waits in a collective that the other ranks do not issue",
            hint="no rank may choose the next collective by its own data",
        )

    def _fail(self, rank: int, error: BaseException) -> None:
        """Record the error of a task, the first of which stops all others."""
        with self.lock:
            if not isinstance(error, Stopped):
                self._record(rank, error)
            self._hand_out()

    def _record(self, rank: int, error: BaseException) -> None:
        if not self._has_failed:
            self._failure, self._has_failed = TaskFailed(rank, error), True
        self._ready.extend(self._paused)
        self._paused.clear()

    def _await_rest(self) -> None:
        """Wait a moment for tasks that have not noticed the failure yet, then stop their loops."""
        end = monotonic() + ENDING
        while self._unfinished > 0:
            if monotonic() > end:
                for thread in self._threads:
                    _raise_in(thread)
                return
            sleep(POLL)


def _raise_in(thread: Thread) -> None:
    """Raise Stopped in a thread as soon as it runs Python code."""
    ident, error = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stopped)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)


def _locked() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock
