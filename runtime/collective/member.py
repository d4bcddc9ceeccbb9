"""Member: this process in one rendezvous, with its store, its record and its heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from compiler.support.dataclass import dataclass
from runtime.collective.monitor import Monitor
from runtime.collective.record import RankRecord
from runtime.collective.rendezvous import Seat, StoreConnection, join
from runtime.collective.slices import call_in_slices, poll_in_slices

T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """A rank that joined a rendezvous; `deadline` is its timeout for other ranks, in seconds."""

    seat: Seat
    store: StoreConnection
    monitor: Monitor
    deadline: float

    @property
    def record(self) -> RankRecord:
        """The published record of this rank."""
        return self.monitor.record

    def key(self, *parts: object) -> str:
        """Return a store key that is private to this rendezvous."""
        return "/".join([self.seat.name, str(self.seat.round), *map(str, parts)])

    def exchange(self, name: str, text: str, check: Callable[[], None]) -> list[str]:
        """Publish a text under a name and wait for that of every rank; return them in rank order.

        Rank 0 hosts the store, so it waits until the others have read the texts.
        """
        keys = [self.key(name, rank) for rank in range(self.seat.size)]
        engine = self.store.engine
        call_in_slices(lambda: engine.set(keys[self.seat.rank], text), check)
        poll_in_slices(lambda: engine.check(keys), check)
        texts: list[bytes] = call_in_slices(lambda: engine.multi_get(keys), check)
        self._await_readers(self.key(name, "read"), check)
        return [data.decode() for data in texts]

    def _await_readers(self, key: str, check: Callable[[], None]) -> None:
        engine, size = self.store.engine, self.seat.size
        call_in_slices(lambda: engine.add(key, 1), check)
        if not self.seat.rank:
            poll_in_slices(lambda: engine.add(key, 0) == size, check)
            call_in_slices(lambda: engine.delete_key(key), check)

    def forget(self, name: str, check: Callable[[], None]) -> None:
        """Delete this rank's text of an exchange that all ranks have read."""
        key = self.key(name, self.seat.rank)
        call_in_slices(lambda: self.store.engine.delete_key(key), check)

    def call(self, function: Callable[[Any], T], check: Callable[[], None]) -> T:
        """Call a function with the connection to the store, in slices."""
        return call_in_slices(lambda: function(self.store.engine), check)


def take_seat(
    seat: Seat,
    deadline: float,
    limit: float,
    store: StoreConnection | None,
    check: Callable[[], None],
) -> Member:
    """Join the rendezvous within `limit` seconds. Raises what `rendezvous.join` and `check`
    raise.
    """
    store, taken = join(seat, limit, store, check)
    own = store.connect(deadline)
    monitor = Monitor(f"{taken.name}/{taken.round}", RankRecord(taken.rank), taken.size, own)
    return Member(taken, store, monitor, deadline)
