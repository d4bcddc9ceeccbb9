"""Rendezvous: the ranks of a group meet at a TCPStore that rank 0 hosts at the first endpoint.

The socket of the host is bound here, to the address of its endpoint only, and passed to the store,
so that a port in use is an error of this process. Every rank publishes its expectations in the
store and reads those of the others: sizes, endpoints or ranks that do not match are errors on all.
torch.distributed's own rendezvous listens on all addresses of the host, and ranks that do not match
wait for each other until its timeout, 5 minutes by default.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from time import monotonic, sleep
from typing import Any, cast
from weakref import WeakValueDictionary

from compiler.support.dataclass import dataclass
from runtime.collective.endpoint import Address, listen, parse_endpoint
from runtime.collective.engine import distributed, seconds
from runtime.collective.processes import host_name, machine_id, own_pid, process_state, start_time
from runtime.collective.slices import (
    SLICE,
    Stopwatch,
    call_in_slices,
    notice,
    poll_in_slices,
)
from runtime.errors import CollectiveError, RendezvousError, StoreLost

CONNECT_GRACE = 2.0
"""Seconds that an accepted connection may take until a store answers on it."""


@dataclass(frozen=True)
class Seat:
    """A process's position in a rendezvous: its rank of `size`, and the configured endpoints.

    `name` keeps several rendezvous in one store apart. `endpoints` holds that of the store only, or
    one per rank. `round` counts the rendezvous of this name in a store, from 1.
    """

    name: str
    rank: int
    size: int
    endpoints: tuple[str, ...]
    round: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise RendezvousError(
                f"rendezvous {self.name!r}: the rank must be from 0 to {self.size - 1}, "
                f"but it is {self.rank}",
                hint="does PADDLE_TRAINER_ID fit PADDLE_TRAINER_ENDPOINTS?",
            )
        if len(self.endpoints) not in (1, self.size):
            raise RendezvousError(
                f"rendezvous {self.name!r}: {self.size} ranks need {self.size} endpoints, "
                f"but {len(self.endpoints)} were given: {', '.join(self.endpoints)}"
            )


@dataclass(frozen=True, eq=False)
class StoreConnection:
    """A connection to the TCPStore at `address`; `reached` is the local address it was made
    from.
    """

    address: Address
    engine: Any = field(repr=False)
    reached: str = "127.0.0.1"

    def connect(self, limit: float) -> Any:
        """Open another connection, for another thread: a call that waits blocks its connection."""
        return _client(self.address, limit)


HOSTED: WeakValueDictionary[Address, StoreConnection] = WeakValueDictionary()
"""The stores hosted by this process, by address: a port belongs to the process, not to a scope."""


def host_store(listener: socket.socket) -> StoreConnection:
    """Create a store that serves on a listening socket, taking ownership of it."""
    host, port = listener.getsockname()[:2]
    store = distributed().TCPStore(
        host, port, None, True, timeout=seconds(60), wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )  # fmt: skip
    return StoreConnection((host, port), store, host)


def open_store(seat: Seat, limit: float) -> StoreConnection:
    """Open the store of a seat: rank 0 hosts it at the first endpoint, the others connect to it."""
    if seat.rank:
        return join_store(seat.endpoints[0], limit, seat.rank)
    address = parse_endpoint(seat.endpoints[0])
    store = HOSTED.get(address) or host_store(listen(seat.endpoints[0]))
    HOSTED[address] = store
    return store


def join_store(endpoint: str, limit: float, rank: int = 1) -> StoreConnection:
    """Connect to the store at an endpoint, within `limit` seconds, as `rank`.

    Raises RendezvousError if nothing listens there, or something that is not a store.
    """
    address = parse_endpoint(endpoint)
    end = monotonic() + limit
    reached = _wait_for_listener(endpoint, address, limit, rank)
    return StoreConnection(
        address, _client(address, max(end - monotonic(), CONNECT_GRACE)), reached
    )


def _wait_for_listener(endpoint: str, address: Address, limit: float, rank: int) -> str:
    """Wait until a connection is accepted; return its local address."""
    end, waits = monotonic() + limit, notice(rank, limit)
    while True:
        try:
            with socket.create_connection(address, timeout=max(end - monotonic(), SLICE)) as probe:
                return str(probe.getsockname()[0])
        except socket.gaierror as error:
            raise RendezvousError(f"the host of endpoint {endpoint} is unknown: {error}") from error
        except OSError as error:
            if monotonic() + SLICE > end:
                raise _nobody_there(endpoint, limit, error) from error
            waits.tick(lambda: f"rank 0 at {endpoint}, where nobody listens yet")
        sleep(SLICE)


def _nobody_there(endpoint: str, limit: float, error: OSError) -> RendezvousError:
    return RendezvousError(
        f"nobody hosts the rendezvous at {endpoint}: no connection in {limit:.1f} s ({error})",
        hint="is rank 0 running, and is its address the first of the list of endpoints?",
    )


def _client(address: Address, limit: float) -> Any:
    """Create a store client and verify it with a key: another server may accept and never
    answer.
    """
    endpoint = f"{address[0]}:{address[1]}"
    watch = Stopwatch()

    def check() -> None:
        watch.tick()
        if watch.elapsed > limit:
            raise _stranger(endpoint, f"no answer in {limit:.1f} s")

    def connect() -> Any:
        store = distributed().TCPStore(
            *address, None, False, timeout=seconds(limit), wait_for_workers=False
        )
        store.add("connections", 1)
        return store

    try:
        return call_in_slices(connect, check)
    except RendezvousError:
        raise
    except (RuntimeError, ValueError) as error:
        raise _stranger(endpoint, str(error).partition("\n")[0]) from error


def _stranger(endpoint: str, why: str) -> RendezvousError:
    return RendezvousError(
        f"the server at {endpoint} is not the rendezvous of these ranks: {why}",
        hint="does another program use this port? is the list of endpoints the same on all ranks?",
    )


# Registrations


def meet(store: StoreConnection, seat: Seat, limit: float, also_check: Callable[[], None]) -> Seat:
    """Register this rank and wait for all others, at most `limit` seconds; return the seat it took.

    Raises RendezvousError if a rank is taken, expects another size or other endpoints, or does not
    arrive, and StoreLost if the connection is lost.
    """
    watch = Stopwatch()

    def check() -> None:
        also_check()
        watch.tick()
        if watch.elapsed > limit + CONNECT_GRACE:
            raise RendezvousError(
                f"rendezvous {seat.name!r} at {seat.endpoints[0]}: no answer in {limit:.1f} s",
                hint="is rank 0, which hosts it, still running?",
            )

    try:
        seat = call_in_slices(lambda: _take_seat(store.engine, seat), check)
        _meet_others(store.engine, seat, limit, check)
    except CollectiveError:
        raise
    except RuntimeError as error:
        why = str(error).partition("\n")[0]
        raise StoreLost(
            f"rendezvous {seat.name!r} at {seat.endpoints[0]}: the connection to rank 0 was lost: "
            f"{why}"
        ) from error
    return seat


def _introduction(seat: Seat) -> dict[str, Any]:
    own = {"rank": seat.rank, "size": seat.size, "endpoints": list(seat.endpoints)}
    pid = own_pid()
    place = {"host": host_name(), "machine": machine_id(), "pid": pid, "started": start_time(pid)}
    return own | place


def _key(seat: Seat, *parts: object) -> str:
    return "/".join(["rendezvous", seat.name, str(seat.round), *map(str, parts)])


def _take_seat(store: Any, seat: Seat) -> Seat:
    """Return the seat for the next round of this rank, claimed by this process."""
    count = store.add(_key(replace(seat, round=0), "rounds", seat.rank), 1)
    taken, before = replace(seat, round=count), replace(seat, round=count - 1)
    if count > 1:
        _expect_own(seat, _parse_introduction(store.get(_key(before, seat.rank)).decode()))
    store.set(_key(taken, seat.rank), json.dumps(_introduction(seat)))
    return taken


def _expect_own(seat: Seat, other: dict[str, Any]) -> None:
    """Raise RendezvousError if another process that may still run has this rank."""
    here = other["machine"] == machine_id() != ""
    is_own = here and other["pid"] == own_pid()
    if is_own or (here and process_state(other["pid"], other["started"]) == "ended"):
        return
    raise RendezvousError(
        f"rendezvous {seat.name!r} at {seat.endpoints[0]}: rank {seat.rank} is taken by "
        f"process {other['pid']} on {other['host']}",
        hint="two processes were started with the same rank (PADDLE_TRAINER_ID)",
    )


def _meet_others(store: Any, seat: Seat, limit: float, check: Callable[[], None]) -> None:
    """Wait for every rank; on failure, publish the reason for the others."""
    left, end = set(range(seat.size)) - {seat.rank}, monotonic() + limit
    waits = notice(seat.rank, limit)

    def all_came() -> bool:
        _welcome(store, seat, left)
        if left and monotonic() > end:
            raise _did_not_come(seat, sorted(left), limit)
        if left:
            waits.tick(lambda: f"{_names(seat, left)} to start")
        return not left

    try:
        poll_in_slices(all_came, check)
    except RendezvousError as error:
        message = error.message
        call_in_slices(lambda: store.set(_key(seat, "refused"), message), check)
        raise


def _welcome(store: Any, seat: Seat, left: set[int]) -> None:
    """Compare the registrations of ranks that arrived, and remove these ranks from `left`."""
    for rank in [rank for rank in left if store.check([_key(seat, rank)])]:
        _compare(seat, _parse_introduction(store.get(_key(seat, rank)).decode()))
        left.remove(rank)
    if store.check([_key(seat, "refused")]):
        raise RendezvousError(store.get(_key(seat, "refused")).decode())


def _parse_introduction(text: str) -> dict[str, Any]:
    try:
        loaded = json.loads(text)
        introduction = cast("dict[str, Any]", loaded)
        wanted = {"rank": int, "size": int, "endpoints": list, "host": str, "machine": str}
        wanted |= {"pid": int, "started": int}
        if all(isinstance(introduction[name], kind) for name, kind in wanted.items()):
            return introduction
    except (ValueError, KeyError, TypeError) as error:
        raise RendezvousError(f"malformed registration of a rank: {text[:80]!r}") from error
    raise RendezvousError(f"malformed registration of a rank: {text[:80]!r}")


def _compare(seat: Seat, other: dict[str, Any]) -> None:
    """Raise RendezvousError if another rank expects a different group than this one."""
    who = f"rank {other['rank']} (host {other['host']}, process {other['pid']})"
    here = f"rendezvous {seat.name!r} at {seat.endpoints[0]}"
    if other["size"] != seat.size:
        raise RendezvousError(
            f"{here}: rank {seat.rank} expects {seat.size} ranks, {who} expects {other['size']}",
            hint="start all ranks with the same list of endpoints",
        )
    for index, pair in enumerate(zip(seat.endpoints, other["endpoints"], strict=False)):
        if pair[0] != pair[1]:
            raise RendezvousError(
                f"{here}: endpoint {index} is {pair[0]} on rank {seat.rank} and {pair[1]} on {who}",
                hint="start all ranks with the same list of endpoints",
            )


def _did_not_come(seat: Seat, missing: Sequence[int], limit: float) -> RendezvousError:
    here = f"rendezvous {seat.name!r} at {seat.endpoints[0]}"
    return RendezvousError(
        f"{here}: {_names(seat, missing)} did not arrive in {limit:.1f} s; "
        f"rank {seat.rank} waited for {seat.size} ranks",
        hint="are all ranks started, with the same list of endpoints?",
    )


def join(
    seat: Seat, limit: float, store: StoreConnection | None, check: Callable[[], None]
) -> tuple[StoreConnection, Seat]:
    """Meet the other ranks within `limit` seconds, over `store` if one is passed in.

    `check` is called in every slice, and may raise.

    Raises RendezvousError as `open_store` and `meet` do. A client that connected to the store of an
    earlier rendezvous, which is being closed, tries again.
    """
    end = monotonic() + limit
    while True:
        left = max(end - monotonic(), SLICE)
        rendezvous = store or open_store(seat, left)
        try:
            return rendezvous, meet(rendezvous, seat, left, check)
        except StoreLost:
            if store or not seat.rank or monotonic() + SLICE > end:
                raise
        sleep(SLICE)


def _names(seat: Seat, ranks: Iterable[int]) -> str:
    return ", ".join(f"rank {rank}{_at(seat, rank)}" for rank in sorted(ranks))


def _at(seat: Seat, rank: int) -> str:
    return f" ({seat.endpoints[rank]})" if len(seat.endpoints) == seat.size > 1 else ""
