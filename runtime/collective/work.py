"""Work on rings: it is started and waited for, while the other ranks are watched."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import sleep
from typing import NoReturn, TypeVar

from runtime.collective.groups.group import Work
from runtime.collective.member import Member
from runtime.collective.monitor import Completed
from runtime.collective.ring import Pending, Ring, keep_alive
from runtime.collective.slices import SLICE
from runtime.collective.watchdog import Watchdog
from runtime.errors import CollectiveError, RankError

Look = Callable[[], None]
"""Raises for a failed rank; called in every slice of a wait."""

T = TypeVar("T")


class ErrorPublisher:
    """Publishes the first error of this rank; `first` is its text, empty without one."""

    def __init__(self, members: Mapping[str, Member], rings: Mapping[int, Ring]) -> None:
        self.first = ""
        self._members = members
        self._rings = rings

    def publish(self, error: BaseException) -> None:
        """Publish that an error ended the step of this rank, so that others can name it."""
        if self.first:
            return
        self.first = f"{type(error).__name__}: {error}".partition("\n")[0]
        named_rank = error.rank if isinstance(error, RankError) else -1
        for member in self._members.values():
            member.monitor.fail(self.first, named_rank)
        for ring in self._rings.values():
            keep_alive(ring)


class WorkRunner:
    """Starts work on rings and waits for it, at most `deadline` seconds.

    `hooks` are called in every slice of a wait; they raise for failures detected by other means.
    `children` are ranks that are child processes of this one, whose exit a hook detects.
    """

    def __init__(
        self,
        deadline: float,
        hooks: list[Look],
        children: set[int],
        errors: ErrorPublisher,
    ) -> None:
        self._deadline = deadline
        self._hooks = hooks
        self._children = children
        self._errors = errors

    def run(self, ring: Ring, start: Callable[[], Work], *, of_all: bool = False) -> None:
        """Start work and wait for it; nothing if the ring has one rank.

        `of_all` is true if it completes only after all ranks took part.
        """
        if ring.size > 1:
            record = ring.member.record
            count = record.count(ring.number) if of_all else 0
            work = self.start(ring, record.call, start)
            self.finish(ring, Pending(record.call, work, [], count))

    def start(self, ring: Ring, what: str, start: Callable[[], T]) -> T:
        """Start work; engine errors are converted to errors of a rank."""
        with self.publishing_errors():
            try:
                return start()
            except RuntimeError as error:
                self._conclude(ring, what, error)

    def finish(self, ring: Ring, pending: Pending) -> None:
        """Wait for work and run its remaining stages."""
        work = pending.work
        while True:
            if work is not None:
                with self.publishing_errors():
                    self._await(ring, pending.what, work)
            if not pending.stages:
                break
            work = self.start(ring, pending.what, pending.stages.pop(0))
        if pending.count:
            member = ring.member
            done = Completed(pending.count, pending.what, member.record.step)
            member.monitor.completed[ring.number] = done

    def watchdog(self, ring: Ring, what: str, waits_for: int | None = None) -> Watchdog:
        """A watchdog for one wait on a ring."""
        return Watchdog(
            ring.member.monitor, what, ring.number, self._deadline, self._hooks,
            waits_for=waits_for, children=self._children,
        )  # fmt: skip

    @contextmanager
    def watched(self, ring: Ring, what: str) -> Generator[Look]:
        """Yield a function for `call_in_slices`; engine errors are converted to errors of a
        rank.
        """
        with self.publishing_errors():
            try:
                yield self.watchdog(ring, what).check
            except RuntimeError as error:
                self._conclude(ring, what, error)

    @contextmanager
    def publishing_errors(self) -> Generator[None]:
        """Publish errors raised in a wait, including Ctrl-C, for the other ranks."""
        try:
            yield
        except BaseException as error:
            self._errors.publish(error)
            raise

    def _await(self, ring: Ring, what: str, work: Work) -> None:
        watchdog: Watchdog | None = None
        while True:
            try:
                if work.done():
                    return
            except RuntimeError as error:
                self._conclude(ring, what, error)
            watchdog = watchdog or self.watchdog(ring, what)
            watchdog.check()

    def _conclude(self, ring: Ring, what: str, error: Exception) -> NoReturn:
        """Raise for an engine error, once the failed rank is known."""
        if isinstance(error, CollectiveError):
            raise error
        watchdog = self.watchdog(ring, what)
        while True:
            watchdog.conclude(error)
            sleep(SLICE)
