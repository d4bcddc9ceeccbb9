"""Agreement: ranks compare which collectives they are about to run."""

from __future__ import annotations

from runtime.collective.ring import Ring
from runtime.collective.schedule import (
    different_calls,
    different_histories,
    different_schedules,
    exchange_schedules,
    read_schedule,
    ring_lines,
    schedule_digest,
)
from runtime.collective.watchdog import SETTLING
from runtime.collective.work import WorkRunner

MAX_CALLS = 1 << 16
"""Maximum number of agreed calls kept for a ring; past it all are dropped, on every rank."""


class Agreement:
    """Compares the collectives of this rank with those of the others.

    `lines` are the collectives of the module that runs; all ranks compare them before the first
    one on a ring. Every method raises ScheduleError, on every rank, where they differ.
    """

    def __init__(self, runner: WorkRunner) -> None:
        self.lines: tuple[str, ...] = ()
        self._runner = runner

    def expect_same_history(self, ring: Ring) -> None:
        """Compare the schedule of the module, and what is known of calls of the others."""
        if self.lines is not ring.lines:
            lines = ring_lines(self.lines, ring.number)
            if lines:
                self.expect_same_schedule(ring, "\n".join(lines))
            ring.lines = self.lines
        difference = ring.member.monitor.difference
        if difference is not None:
            with self._runner.publishing_errors():
                raise different_histories(difference, ring.member.record.rank)

    def expect_same_schedule(self, ring: Ring, text: str) -> None:
        """Compare the text of a program's collectives, once for each text."""
        digest = ring.member.record.program = schedule_digest(text)
        if digest in ring.schedules:
            return
        watchdog = self._runner.watchdog(ring, f"comparison of the schedules of ring {ring.number}")

        def check() -> None:
            watchdog.check()
            if watchdog.elapsed > SETTLING:
                _expect_same_program(ring, text)

        with self._runner.publishing_errors():
            exchange_schedules(ring.member, ring.number, len(ring.schedules), text, check)
        ring.schedules.add(digest)

    def expect_same_call(self, ring: Ring, call: str) -> None:
        """Compare a call, once for each: Gloo aborts if sizes differ, or returns garbage."""
        if call in ring.seen:
            return
        member = ring.member
        name = f"calls/{ring.number}/{member.record.count(ring.number)}"
        with self._runner.watched(ring, call) as check:
            calls = member.exchange(name, call, check)
            different = [rank for rank, other in enumerate(calls) if other != call]
            if different:
                other, count = different[0], member.record.count(ring.number)
                raise different_calls(ring.number, count, (ring.rank, call), (other, calls[other]))
            ring.exchanges.append(name)
            if len(ring.exchanges) > 1:
                member.forget(ring.exchanges.pop(0), check)
        if len(ring.seen) >= MAX_CALLS:
            ring.seen.clear()
        ring.seen.add(call)


def _expect_same_program(ring: Ring, text: str) -> None:
    """Raise ScheduleError if another rank has continued with another program."""
    member, number = ring.member, ring.number
    for record in member.monitor.others.values():
        is_ahead = record.count(number) > member.record.count(number)
        if is_ahead and record.program and record.program != member.record.program:
            other = read_schedule(member, record.program, _nothing)
            raise different_schedules(number, text, other, [ring.rank], [record.rank])


def _nothing() -> None:
    """Check nothing."""
