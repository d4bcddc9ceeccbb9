"""The trainers of a job as a server sees them: connected, lost, completed.

A trainer's id belongs to one session, a process: the first that claims it. Another one can claim it
when no stream of the owner is open any more, or the owner is lost; so a restarted trainer takes its
id over once the connection of the process that was killed has broken.
"""

from __future__ import annotations

import time
from dataclasses import field
from threading import Condition, Lock

from compiler.support.dataclass import dataclass
from runtime.errors import TryAgain, WireError
from runtime.ps.wire.callers import Caller

MAX_STREAMS = 2
"""Maximum number of open exchanges of a trainer: one, and one whose connection has broken."""


@dataclass
class TrainerMember:
    """One trainer. Times are of `time.monotonic`; `streams` counts its open exchanges.

    `owner` is the session that the id belongs to, `links` counts the open streams of that session.
    """

    owner: str = ""
    links: int = 0
    streams: int = 0
    beat: float | None = None
    broken: float | None = None
    completed: bool = False
    dropped: bool = False
    left: bool = False


@dataclass
class Members:
    """All trainers; the methods may be called by any thread."""

    trainers: int
    lost_after: float
    return_within: float
    members: list[TrainerMember] = field(default_factory=list[TrainerMember])
    failure: str = ""

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._sessions: set[str] = set()
        self.closing = Condition()
        self.is_closed = False
        self.members = [TrainerMember() for _ in range(self.trainers)]

    def claim(self, trainer: int, session: str) -> None:
        """Record a heartbeat; the id of the trainer belongs to the session from now on.

        Raises TryAgain if another process is connected with this id, and WireError for an id that
        no trainer has.
        """
        with self._lock:
            self._claim(trainer, session)

    def _claim(self, trainer: int, session: str) -> TrainerMember:
        member, now = self._member(trainer), time.monotonic()
        if member.owner not in ("", session):
            is_lost = member.beat is not None and now - member.beat > self.lost_after
            if member.links and not is_lost:
                raise TryAgain(f"another process is connected as trainer {trainer}")
            self._sessions.discard(member.owner)
            member.links = member.streams = 0
        member.owner, member.beat = session, now
        self._sessions.add(session)
        return member

    def _member(self, trainer: int) -> TrainerMember:
        if not 0 <= trainer < self.trainers:
            raise WireError(f"there is no trainer {trainer}: there are {self.trainers}")
        return self.members[trainer]

    def is_owner(self, session: str) -> bool:
        """Whether some trainer's id belongs to a session; any thread may call, without waiting."""
        return session in self._sessions

    def expect_owner(self, trainer: int, caller: Caller) -> None:
        """Raise an error if the id of a trainer does not belong to the caller.

        TryAgain if it belongs to nobody, as after a restart of the server; WireError otherwise.
        """
        owner = self._member(trainer).owner
        if not owner:
            raise TryAgain(f"no process is connected as trainer {trainer}; claim the id first")
        if owner != caller.session:
            raise WireError(f"the id of trainer {trainer} belongs to another process")

    def link(self, trainer: int, session: str) -> None:
        """Record a stream that keeps the id; claims it as `claim` does."""
        with self._lock:
            self._claim(trainer, session).links += 1

    def unlink(self, trainer: int, session: str) -> None:
        """Record the end of a stream."""
        with self._lock:
            member = self.members[trainer]
            member.links -= member.owner == session

    def connect(self, trainer: int, session: str) -> None:
        """Record an exchange that a trainer opened; claims its id as `claim` does.

        Raises TryAgain if the trainer has MAX_STREAMS open ones.
        """
        with self._lock:
            member = self._claim(trainer, session)
            if member.streams >= MAX_STREAMS:
                raise TryAgain(f"trainer {trainer} has {member.streams} open exchanges")
            member.links += 1
            member.streams += 1
            member.broken = None
            member.completed = member.dropped = member.left = False

    def disconnect(self, trainer: int, session: str) -> None:
        """Record the end of an exchange."""
        with self._lock:
            member = self.members[trainer]
            if member.owner != session:
                return
            member.links -= 1
            member.streams -= 1
            if member.streams == 0 and not member.completed:
                member.broken = time.monotonic()

    def complete(self, trainer: int) -> None:
        """Record that a trainer has finished."""
        with self._lock:
            self.members[trainer].completed = True

    def leave(self, trainer: int) -> None:
        """Record that the process of a trainer that has finished exits now."""
        with self._lock:
            self.members[trainer].left = True

    def drop(self, trainer: int) -> None:
        """Record that a trainer is no longer waited for."""
        with self._lock:
            self.members[trainer].dropped = True

    def abort(self, why: str) -> None:
        """Record that a trainer failed with an error."""
        with self._lock:
            self.failure = self.failure or why

    @property
    def all_completed(self) -> bool:
        """Whether every trainer that is not dropped has finished, and at least one has."""
        with self._lock:
            finished = [member.completed or member.dropped for member in self.members]
            return all(finished) and any(member.completed for member in self.members)

    @property
    def all_left(self) -> bool:
        """Whether the processes of all trainers that have finished have exited."""
        with self._lock:
            return all(member.left or member.dropped for member in self.members)

    def close(self) -> None:
        """End the waits of `Hold` calls, because the server exits."""
        with self.closing:
            self.is_closed = True
            self.closing.notify_all()

    def finished(self) -> list[int]:
        """The trainers that have completed."""
        with self._lock:
            return [number for number, member in enumerate(self.members) if member.completed]

    def absent(self) -> list[int]:
        """The trainers that are waited for and have never connected."""
        with self._lock:
            waited = [not member.completed and not member.dropped for member in self.members]
            return [n for n, member in enumerate(self.members) if waited[n] and member.beat is None]

    @property
    def all_disconnected(self) -> bool:
        """Whether every trainer has connected, and none has an open exchange."""
        with self._lock:
            return all(member.beat is not None and not member.streams for member in self.members)

    def lost(self) -> dict[int, str]:
        """The trainers that appear lost, each with the reason."""
        now = time.monotonic()
        with self._lock:
            reasons = {number: self._why(member, now) for number, member in enumerate(self.members)}
        return {number: why for number, why in reasons.items() if why}

    def _why(self, member: TrainerMember, now: float) -> str:
        if member.completed or member.dropped:
            return ""
        if member.broken is not None and now - member.broken > self.return_within:
            return f"its connection broke {now - member.broken:.1f} s ago"
        if member.beat is not None and now - member.beat > self.lost_after:
            return f"its last heartbeat was {now - member.beat:.1f} s ago"
        return ""

    def described(self) -> list[dict[str, object]]:
        """One entry per trainer, for `fluid ps status`."""
        now = time.monotonic()
        with self._lock:
            return [
                {
                    "trainer": number,
                    "state": _state(member),
                    "beat": member.beat and now - member.beat,
                }
                for number, member in enumerate(self.members)
            ]


def _state(member: TrainerMember) -> str:
    if member.completed or member.dropped:
        return "completed" if member.completed else "dropped"
    return "connected" if member.streams else "absent" if member.beat is None else "known"
