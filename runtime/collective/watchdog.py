"""Watchdog: while a rank waits for the others, it watches for one that ended, stopped or stalled.

Checked in this order: a process of this machine that ended, a rank that published an error, a
rank that left, ranks that issue another collective, a rank without heartbeats, the rank that hosts
the store. At the deadline the rank that issued the fewest collectives is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compiler.support.dataclass import dataclass
from runtime.collective.monitor import Monitor
from runtime.collective.processes import process_state
from runtime.collective.record import RankRecord
from runtime.collective.schedule import different_histories
from runtime.collective.slices import Stopwatch, notice
from runtime.errors import CollectiveError, RankError, ScheduleError

MIN_SILENCE = 3.0
MAX_SILENCE = 20.0
"""Maximum seconds without a heartbeat before a rank counts as stopped; see `silence_limit`."""

SETTLING = 1.0
"""Seconds after which different collectives are an error: a record may be one heartbeat old."""

DIFFERENT = f"{ScheduleError.__name__}: "
"""Prefix of the failure published by a rank that runs another program than others."""

RESTART_HINT = "start all ranks again, from the last checkpoint"


@dataclass(frozen=True)
class Suspect:
    """A failed rank and the cause."""

    rank: int
    cause: str


def silence_limit(deadline: float) -> float:
    """Seconds without a heartbeat after which a rank counts as stopped.

    >>> silence_limit(30.0), silence_limit(180.0)
    (10.0, 20.0)
    """
    return min(MAX_SILENCE, max(MIN_SILENCE, deadline / 3))


class Watchdog:
    """One wait of a rank for the others; `what` describes it, for error messages.

    `waits_for` is the rank it waits for, if only one. `children` are ranks whose exit a hook
    detects, with its signal.

    `check` is called in every slice. It raises RankError or ScheduleError if a rank failed.
    """

    def __init__(
        self,
        monitor: Monitor,
        what: str,
        ring: int,
        deadline: float,
        hooks: Iterable[Callable[[], None]] = (),
        *,
        waits_for: int | None = None,
        children: Iterable[int] = (),
    ) -> None:
        self._monitor = monitor
        self._what = what
        self._ring = ring
        self._deadline = deadline
        self._hooks = list(hooks)
        self._waits_for = waits_for
        self._children = frozenset(children)
        self._watch = Stopwatch()
        self._notice = notice(monitor.record.rank, deadline)
        self._beats: dict[int, int] = {}
        self._silent: dict[int, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds waited so far."""
        return self._watch.elapsed

    def check(self) -> None:
        """Raise if a rank failed or the deadline has passed."""
        passed = self._watch.tick()
        self._run_hooks()
        self._listen(passed)
        if self._monitor.difference is not None and self.elapsed > SETTLING:
            raise different_histories(self._monitor.difference, self._monitor.record.rank)
        self._expect_no_schedule_error()
        suspect = self._suspect()
        if suspect is not None:
            self._run_hooks()  # a child may have ended first and caused the others to end
            raise self._error(suspect)
        if self.elapsed > SETTLING:
            self._expect_same_calls()
        if self.elapsed > self._deadline:
            raise self._error(self._behind())
        self._notice.tick(lambda: f"{self._record_behind().where()} in {self._what}")

    def conclude(self, error: Exception) -> None:
        """Raise for an engine error: the failed rank, as soon as one can be named."""
        if self.elapsed > min(silence_limit(self._deadline) + SETTLING, self._deadline):
            why = str(error).partition("\n")[0]
            raise CollectiveError(
                f"{self._what} failed: {why}",
                hint=f"no rank is known to be at fault; {RESTART_HINT}",
            ) from error
        self.check()

    def _expect_no_schedule_error(self) -> None:
        """Raise ScheduleError if another rank did: no single rank is at fault."""
        for record in self._monitor.others.values():
            if record.failure.startswith(DIFFERENT):
                raise ScheduleError(
                    f"{record.failure.removeprefix(DIFFERENT)} (found by rank {record.rank})",
                    hint="all ranks must run the same program on equal shapes",
                )

    def _run_hooks(self) -> None:
        for hook in self._hooks:
            hook()

    def _listen(self, passed: float) -> None:
        """Update how long each rank has been silent."""
        self._monitor.wake()
        for rank, record in self._monitor.others.items():
            if self._beats.get(rank) != record.beat:
                self._beats[rank] = record.beat
                self._silent[rank] = 0.0
            else:
                self._silent[rank] += passed

    def _suspect(self) -> Suspect | None:
        others = sorted(self._monitor.others.values(), key=lambda record: record.rank)
        finders = (
            self._found_ended,
            self._ended,
            self._failed,
            self._left,
            self._named_by_another,
            self._silent_rank,
        )
        for finder in finders:
            for record in others:
                cause = finder(record)
                if cause:
                    return Suspect(record.rank, cause)
        return self._adopted(others)

    def _found_ended(self, record: RankRecord) -> str:
        """If several processes ended, return the one that another rank found first."""
        return self._ended(record) if self._named_by_another(record) else ""

    def _ended(self, record: RankRecord) -> str:
        if not self._is_near(record) or record.failure or record.has_left:
            return ""
        if record.rank in self._children:
            return ""
        ended = process_state(record.pid, record.started) == "ended"
        return "its process ended" + self._hosts(record) if ended else ""

    def _hosts(self, record: RankRecord) -> str:
        return "; it hosted the rendezvous" if record.rank == 0 and self._monitor.lost else ""

    def _failed(self, record: RankRecord) -> str:
        return f"it raised {record.failure}" if record.failure and record.named_rank < 0 else ""

    def _left(self, record: RankRecord) -> str:
        return "it has finished" if record.has_left and not record.failure else ""

    def _named_by_another(self, record: RankRecord) -> str:
        """Return what other ranks reported about this one."""
        others = self._monitor.others.values()
        reports = [other for other in others if other.failure and other.named_rank == record.rank]
        return f"rank {reports[0].rank} reported it: {reports[0].failure}" if reports else ""

    def _adopted(self, others: list[RankRecord]) -> Suspect | None:
        """A rank that raised an error in which it named this one."""
        for record in others:
            if record.failure:
                return Suspect(record.rank, f"it raised {record.failure}")
        return None

    def _silent_rank(self, record: RankRecord) -> str:
        limit = silence_limit(self._deadline)
        silent = self._silent.get(record.rank, 0.0)
        if self._monitor.lost or silent <= limit:
            lost = self._monitor.lost if record.rank == 0 else ""
            return f"it hosts the rendezvous, whose connection was lost ({lost})" if lost else ""
        first = self._silent.get(0, 0.0)
        if record.rank and first > limit:  # without the store no heartbeats are received
            return ""
        state = process_state(record.pid, record.started) if self._is_near(record) else ""
        shown = f" (its process is {state})" if state == "stopped" else ""
        return f"no heartbeat for {silent:.1f} s{shown}"

    def _is_near(self, record: RankRecord) -> bool:
        mine = self._monitor.record.machine
        return bool(mine) and record.machine == mine

    def _expect_same_calls(self) -> None:
        """Raise ScheduleError if another rank issued a different collective with the same
        number.
        """
        mine = self._monitor.record
        for record in self._monitor.others.values():
            same_place = record.ring == mine.ring and record.count(mine.ring) == mine.count(
                mine.ring
            )
            if same_place and record.call != mine.call and mine.ring == self._ring:
                raise ScheduleError(
                    f"ranks {mine.rank} and {record.rank} issue different collectives: number "
                    f"{mine.count(mine.ring)} of ring {mine.ring} is {mine.call} on rank "
                    f"{mine.rank} and {record.call} on rank {record.rank} (host {record.host}, "
                    f"process {record.pid})",
                    hint="all ranks must run the same program on equal shapes",
                )

    def _record_behind(self) -> RankRecord:
        """The rank that issued the fewest collectives, which the others wait for."""
        others = self._monitor.others
        if self._waits_for is not None:
            return others[self._waits_for]
        return min(others.values(), key=lambda each: (each.count(self._ring), each.rank))

    def _behind(self) -> Suspect:
        """The rank that made no progress until the deadline."""
        record = self._record_behind()
        count, mine = record.count(self._ring), self._monitor.record.count(self._ring)
        return Suspect(
            record.rank,
            f"no progress for {self.elapsed:.0f} s (FLAGS_rpc_deadline); it issued {count} "
            f"collectives of ring {self._ring}, this rank {mine}",
        )

    def _error(self, suspect: Suspect) -> RankError:
        record = self._monitor.known(suspect.rank) or self._monitor.others[suspect.rank]
        return RankError(
            f"{self._what} failed: {record.where()}: {suspect.cause}",
            rank=record.rank, host=record.host, pid=record.pid, step=record.step,
            last=record.call, cause=suspect.cause, hint=RESTART_HINT,
        )  # fmt: skip
