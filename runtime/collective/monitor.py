"""Monitor: a thread that publishes the record of this rank and reads those of the others.

It uses a separate connection to the store, since a rank that waits there blocks its connection.
The last records read are kept: the store disappears with the rank that hosts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread, current_thread
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.collective.history import History
from runtime.collective.record import MAX_FAILURE_CHARS, RankRecord

INTERVAL = 0.5
"""Seconds between two heartbeats."""

LEAVE_LIMIT = 5.0
"""Seconds that a rank waits at exit for its last record to be published."""


@dataclass(frozen=True)
class Completed:
    """The last collective of a ring that all ranks took part in, and that completed here."""

    count: int
    call: str
    step: int


@dataclass(frozen=True)
class RankDifference:
    """Another rank whose calls on a ring differ from those of this one.

    The first difference is after call number `agreed`, at the latest at `count`, whose call is
    `mine` here and `other` there, "" if not known.
    """

    ring: int
    rank: int
    agreed: int
    count: int
    mine: str
    other: str


class Monitor:
    """Heartbeats of one rank of a rendezvous; `others` are the records of the other ranks.

    `difference` is the first one seen between `histories`, which are by ring, and those of others.
    """

    def __init__(self, name: str, record: RankRecord, size: int, store: Any) -> None:
        self.record = record
        self.others: dict[int, RankRecord] = {}
        self.completed: dict[int, Completed] = {}
        self.histories: dict[str, History] = {}
        self.difference: RankDifference | None = None
        self.lost = ""
        """The error that ended the connection to the store, if any."""
        self._store = store
        self._keys = [f"record/{name}/{rank}" for rank in range(size)]
        self._wake = Event()
        self._ended = False
        self._thread = Thread(target=self._beat, daemon=True, name=f"heartbeat {name}")
        self._publish()

    def add_ring(self, ring: int) -> None:
        """Start counting the calls of a ring, from 0."""
        self.record.add_ring(ring)
        self.histories = {str(ring): History()} | self.histories

    def note(self, ring: int, call: str) -> None:
        """Record the call that this rank is about to make on a ring."""
        record, key = self.record, str(ring)
        record.history[key] = latest = self.histories[key].add(call)
        record.issued[key], record.ring, record.call = latest[0], ring, call

    def start(self) -> None:
        """Start the heartbeats; every rank must have created its monitor before, so that all are
        read.
        """
        self._read()
        self._thread.start()

    def wake(self) -> None:
        """Publish and read immediately."""
        self._wake.set()

    def leave(self, failure: str = "", named_rank: int = -1) -> None:
        """Publish how this rank ended, and stop.

        The monitor's own thread, which may call this when it collects garbage, ends later.
        """
        if self._ended:
            return
        self.record.has_left = True
        self.record.failure = failure[:MAX_FAILURE_CHARS]
        self.record.named_rank = named_rank
        self._ended = True
        self._wake.set()
        if self._thread.ident is not None and self._thread is not current_thread():
            self._thread.join(LEAVE_LIMIT)

    def known(self, rank: int) -> RankRecord | None:
        """What another rank did last: its record, or a later collective that completed here."""
        record = self.others.get(rank)
        latest = max(self.completed.items(), key=lambda each: each[1].step, default=None)
        if record is None or latest is None:
            return record
        ring, done = latest
        if done.count <= record.count(ring):
            return record
        issued = record.issued | {str(ring): done.count}
        return replace(record, ring=ring, call=done.call, step=done.step, issued=issued)

    def fail(self, failure: str, named_rank: int) -> None:
        """Publish immediately that this rank raised an error, which may name another rank."""
        if not self.record.failure:
            self.record.failure = failure[:MAX_FAILURE_CHARS]
            self.record.named_rank = named_rank
            self._wake.set()

    def _beat(self) -> None:
        while not self.lost:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            ended = self._ended
            self._guarded(self._publish)
            if ended:
                return
            self._guarded(self._read)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (RuntimeError, ValueError) as error:
            self.lost = str(error).partition("\n")[0] or type(error).__name__

    def _publish(self) -> None:
        self.record.beat += 1
        self._store.set(self._keys[self.record.rank], self.record.text())

    def _read(self) -> None:
        texts = self._store.multi_get(self._keys)
        for rank, text in enumerate(texts):
            if rank != self.record.rank:
                self.others[rank] = record = RankRecord.parse(text)
                self._compare(record)

    def _compare(self, record: RankRecord) -> None:
        for ring, (count, checksum) in record.history.items():
            own = self.histories.get(ring)
            if own is not None and own.differs(count, checksum) and self.difference is None:
                other = record.call if ring == str(record.ring) else ""
                where = int(ring), record.rank, own.agreed, count
                self.difference = RankDifference(*where, own.call(count), other)
