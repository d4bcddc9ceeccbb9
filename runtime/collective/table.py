"""The rings of a process: created, waited for, watched and closed. `rings` has the collectives."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any, NoReturn, TypeVar

from runtime.collective.engine import distributed
from runtime.collective.group import Work
from runtime.collective.hierarchy import make_hierarchy
from runtime.collective.member import Member, take_seat
from runtime.collective.monitor import Completed, Difference
from runtime.collective.record import Record
from runtime.collective.rendezvous import Seat, Store
from runtime.collective.ring import Pending, Ring, host_group, keep_alive, release
from runtime.collective.schedule import (
    different_calls,
    different_histories,
    different_schedules,
    exchange_schedules,
    read_schedule,
    ring_lines,
    schedule_digest,
)
from runtime.collective.slices import SLICE, rpc_deadline
from runtime.collective.watchdog import SETTLING, Watchdog
from runtime.errors import CollectiveError, RankError

MAX_CALLS = 1 << 16
"""Maximum number of agreed calls kept for a ring; past it all are dropped, on every rank."""

Look = Callable[[], None]
T = TypeVar("T")


class RingTable:
    """The rings of one process. `deadline` is in seconds, `FLAGS_rpc_deadline` by default."""

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = rpc_deadline() if deadline is None else deadline
        self.hooks: list[Look] = []
        """Called in every slice of a wait; they raise for failures detected by other means."""
        self.children: set[int] = set()
        """Ranks that are child processes of this one, whose exit a hook detects."""
        self._members: dict[str, Member] = {}
        self._rings: dict[int, Ring] = {}
        self._broken = ""
        self._step = 0
        self._lines: tuple[str, ...] = ()
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _leave, self._members, self._rings, self._pid)

    # Creating rings

    def create_id(
        self,
        name: str,
        rank: int,
        endpoints: Sequence[str],
        *,
        size: int | None = None,
        store: Store | None = None,
        limit: float | None = None,
    ) -> None:
        """Meet the other ranks at `endpoints[0]`, where rank 0 hosts the store.

        `name` is what `init_ring` refers to. `endpoints` has one per rank, or only the first if
        `size` is the number of ranks. With `store`, no port is opened. The ranks have `limit`
        seconds to arrive, by default the deadline. A name that already exists is left unchanged.
        Raises RendezvousError as `rendezvous.join` does.
        """
        if name in self._members:
            return
        count = len(endpoints) if size is None else size
        seat = Seat(name, rank, count, tuple(endpoints))
        distributed()  # imported before the timeout starts, and before others can connect
        limits = self.deadline, self.deadline if limit is None else limit
        member = take_seat(seat, *limits, store, self._look_at_hooks)
        vigil = Watchdog(member.monitor, f"rendezvous {name!r}", -1, self.deadline, self.hooks)
        member.exchange("met", "", vigil.look)
        member.record.step = self._step
        member.monitor.start()
        self._members[name] = member

    def init_ring(self, ring: int, id_name: str, size: int, rank: int) -> None:
        """Create the group of a ring over a rendezvous that `create_id` made; once for each ring.

        Raises CollectiveError if there is none of this name, or of another size or rank.
        """
        member = self._members.get(id_name)
        if member is None:
            raise CollectiveError(
                f"ring {ring} cannot be initialised: no rendezvous {id_name!r} was made",
                hint="c_gen_nccl_id must run before c_comm_init, in the same scope",
            )
        if (member.seat.size, member.seat.rank) != (size, rank):
            raise CollectiveError(
                f"ring {ring} cannot be initialised as rank {rank} of {size}: rendezvous "
                f"{id_name!r} has rank {member.seat.rank} of {member.seat.size} here"
            )
        if ring not in self._rings:
            made = Ring(ring, member, rank, size, None)
            if size > 1:
                with self._watched(made, f"initialisation of ring {ring}") as look:
                    made.group = host_group(member, f"ring{ring}", list(range(size)), look)
            member.monitor.add_ring(ring)
            self._rings[ring] = made

    def set_hierarchy(self, ring: int, inner: int) -> None:
        """All-reduce in groups of `inner` consecutive ranks first, then between their first ranks.

        Every rank of the ring must call it. Raises ValueError for a size below 1.
        """
        found = self._ring(ring)
        if inner < 1:
            raise ValueError(f"the inner groups of ring {ring} need 1 rank or more, not {inner}")
        if 1 < inner < found.size and not found.is_hierarchical:
            with self._watched(found, f"initialisation of the hierarchy of ring {ring}") as look:
                make_hierarchy(found, inner, look)

    def rank(self, ring: int = 0) -> int:
        """The rank of this process in a ring."""
        return self._ring(ring).rank

    def size(self, ring: int = 0) -> int:
        """The number of ranks of a ring."""
        return self._ring(ring).size

    def has_ring(self, ring: int) -> bool:
        """Whether a ring is initialised."""
        return ring in self._rings

    # Steps, schedules and the end

    @property
    def step(self) -> int:
        """The number of the current step of this rank, as shown in errors of other ranks."""
        return self._step

    @step.setter
    def step(self, number: int) -> None:
        self._step = number
        for member in self._members.values():
            member.record.step = number

    def enter(self, schedule: tuple[str, ...]) -> None:
        """Set the collectives of the module that runs next (its `Module.collectives`).

        All ranks compare them before the first collective of that module on a ring.
        """
        self._lines = schedule

    def check_schedule(self, ring: int, text: str) -> None:
        """Compare the text of a program's collectives between all ranks, once for each text.

        Raises ScheduleError, on every rank, with the first different line and the ranks.
        """
        found = self._ring(ring)
        if found.size == 1:
            return
        self._expect_whole()
        digest = found.member.record.program = schedule_digest(text)
        if digest in found.schedules:
            return
        what = f"comparison of the schedules of ring {ring}"
        vigil = self._vigil(found, what)

        def look() -> None:
            vigil.look()
            if vigil.elapsed > SETTLING:
                self._expect_same_program(found, text)

        with self._guarded():
            exchange_schedules(found.member, ring, len(found.schedules), text, look)
        found.schedules.add(digest)

    def _expect_same_program(self, ring: Ring, text: str) -> None:
        """Raise ScheduleError if another rank has continued with another program."""
        member, number = ring.member, ring.number
        for record in member.monitor.others.values():
            is_ahead = record.count(number) > member.record.count(number)
            if is_ahead and record.program and record.program != member.record.program:
                other = read_schedule(member, record.program, _nothing)
                raise different_schedules(ring.number, text, other, [ring.rank], [record.rank])

    def fail(self, error: BaseException) -> None:
        """Publish that an error ended the step of this rank, so that others can name it."""
        if self._broken:
            return
        self._broken = f"{type(error).__name__}: {error}".partition("\n")[0]
        named_rank = error.rank if isinstance(error, RankError) else -1
        for member in self._members.values():
            member.monitor.fail(self._broken, named_rank)
        for ring in self._rings.values():
            keep_alive(ring)

    def close(self) -> None:
        """Publish that this rank has finished, and drop all rings."""
        self._finalizer()
        self._rings.clear()
        self._members.clear()

    def watch(self, what: str, rank: int, ring: int = 0) -> Look:
        """Return a function that raises for a failed rank, while this one waits for `rank`."""
        found = self._ring(ring)
        return self._vigil(found, what, waits_for=rank).look

    def record_of(self, ring: int, rank: int) -> Record | None:
        """The last known record of another rank; None before the ring was created."""
        found = self._rings.get(ring)
        return None if found is None else found.member.monitor.known(rank)

    # Waiting

    def _look_at_hooks(self) -> None:
        for hook in self.hooks:
            hook()

    def _ring(self, ring: int) -> Ring:
        found = self._rings.get(ring)
        if found is None:
            raise CollectiveError(
                f"ring {ring} was never initialised here",
                hint="run the startup program first (c_gen_nccl_id and c_comm_init), in the same "
                "scope, or run the program with ParallelExecutor or CompiledProgram",
            )
        return found

    def _expect_whole(self) -> None:
        if self._broken:
            raise CollectiveError(
                f"no collective can run after an error: {self._broken}",
                hint="start all ranks again, from the last checkpoint",
            )
        if os.getpid() != self._pid:
            raise CollectiveError(
                "the rings of a process cannot be used in a process that was forked from it"
            )

    def _issue(self, ring: int, kind: str, name: str, details: str) -> Ring:
        """Count a collective, and compare it with the other ranks if it is new."""
        found = self._ring(ring)
        self._expect_whole()
        monitor = found.member.monitor
        if found.size > 1:
            if self._lines is not found.lines:
                self._compare_schedule(found)
            if monitor.difference is not None:
                self._raise_difference(monitor.difference, found)
        call = f"{kind} of {name!r} ({details})"
        monitor.note(ring, call)
        if call not in found.seen and found.size > 1:
            self._agree(found, call)
        return found

    def _compare_schedule(self, ring: Ring) -> None:
        """Compare the schedule of the running module on a ring, unless all ranks already did."""
        lines = ring_lines(self._lines, ring.number)
        if lines:
            self.check_schedule(ring.number, "\n".join(lines))
        ring.lines = self._lines

    def _raise_difference(self, found: Difference, ring: Ring) -> NoReturn:
        with self._guarded():
            raise different_histories(found, ring.member.record.rank)

    def _agree(self, ring: Ring, call: str) -> None:
        """Exchange a call with all ranks: Gloo aborts if sizes differ, or returns garbage."""
        member = ring.member
        name = f"calls/{ring.number}/{member.record.count(ring.number)}"
        with self._watched(ring, call) as look:
            calls = member.exchange(name, call, look)
            different = [rank for rank, other in enumerate(calls) if other != call]
            if different:
                other, count = different[0], member.record.count(ring.number)
                raise different_calls(ring.number, count, (ring.rank, call), (other, calls[other]))
            ring.exchanges.append(name)
            if len(ring.exchanges) > 1:
                member.forget(ring.exchanges.pop(0), look)
        if len(ring.seen) >= MAX_CALLS:
            ring.seen.clear()
        ring.seen.add(call)

    def _run(self, ring: Ring, start: Callable[[], Work], *, of_all: bool = False) -> None:
        """Start work and wait for it; nothing if the ring has one rank.

        `of_all` is true if it completes only after all ranks took part.
        """
        if ring.size > 1:
            record = ring.member.record
            count = record.count(ring.number) if of_all else 0
            work = self._begin(ring, record.call, start)
            self._finish(ring, Pending(record.call, work, [], count))

    def _begin(self, ring: Ring, what: str, start: Callable[[], T]) -> T:
        with self._guarded():
            try:
                return start()
            except RuntimeError as error:
                self._conclude(ring, what, error)

    def _finish(self, ring: Ring, pending: Pending) -> None:
        """Wait for work and run its remaining stages."""
        work = pending.work
        while True:
            if work is not None:
                with self._guarded():
                    self._await(ring, pending.what, work)
            if not pending.stages:
                break
            work = self._begin(ring, pending.what, pending.stages.pop(0))
        if pending.count:
            done = Completed(pending.count, pending.what, self._step)
            ring.member.monitor.completed[ring.number] = done

    def _await(self, ring: Ring, what: str, work: Work) -> None:
        vigil: Watchdog | None = None
        while True:
            try:
                if work.done():
                    return
            except RuntimeError as error:
                self._conclude(ring, what, error)
            vigil = vigil or self._vigil(ring, what)
            vigil.look()

    def _conclude(self, ring: Ring, what: str, error: Exception) -> NoReturn:
        """Raise for an engine error, once the failed rank is known."""
        if isinstance(error, CollectiveError):
            raise error
        vigil = self._vigil(ring, what)
        while True:
            vigil.conclude(error)
            sleep(SLICE)

    def _vigil(self, ring: Ring, what: str, waits_for: int | None = None) -> Watchdog:
        return Watchdog(
            ring.member.monitor, what, ring.number, self.deadline, self.hooks,
            waits_for=waits_for, children=self.children,
        )  # fmt: skip

    @contextmanager
    def _watched(self, ring: Ring, what: str) -> Generator[Look]:
        """Yield a function for `call_in_slices`; engine errors are converted to errors of a
        rank.
        """
        with self._guarded():
            try:
                yield self._vigil(ring, what).look
            except RuntimeError as error:
                self._conclude(ring, what, error)

    @contextmanager
    def _guarded(self) -> Generator[None]:
        """Publish errors raised in a wait, including Ctrl-C, for the other ranks."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise


def _nothing() -> None:
    """Check nothing."""


def _leave(members: dict[str, Member], rings: dict[int, Ring], pid: int) -> None:
    """Publish that this process has ended, with the error that ended it, if any; end threads."""
    if os.getpid() != pid:
        return
    error: Any = getattr(sys, "last_value", None)
    failure = "" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0]
    for member in members.values():
        member.monitor.leave(member.record.failure or failure, member.record.named_rank)
    for ring in rings.values():
        release(ring)
