"""Pool: the ranks of one machine. The calling process is the first, workers are the others.

Workers run modules that the caller compiled, each as one rank. Every failed step ends the pool,
since its ranks are no longer consistent: the caller creates another and sends it the state again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import NoReturn, TypeVar, cast

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.types import Array
from compiler.support.processors import available_processors
from runtime.blas import blas_threads
from runtime.collective.endpoint import listen
from runtime.collective.engine import loaded_torch
from runtime.collective.groups.segment import Segment, SegmentLayout
from runtime.collective.local_store import LocalStore, local_connection
from runtime.collective.rendezvous import StoreConnection, host_store
from runtime.collective.rings import Rings
from runtime.collective.slices import SLICE, rpc_deadline
from runtime.device import CUDAPlace, Place
from runtime.errors import CollectiveError, FeedError
from runtime.parallel.causes import RING, find_cause
from runtime.parallel.channel import Message, text_value
from runtime.parallel.process import Common, SettingsText, Starter, WorkerProcess, shut_down
from runtime.parallel.region import SharedRegion, Value
from runtime.parallel.worker import WorkerSettings

LOOPBACK = "127.0.0.1:0"
NAME = "pool"

SETTLING = 1.0
"""Seconds that the caller waits for the root cause of an error that may be a consequence."""

PART = 1 << 26
"""Bytes of state sent to a worker in one message."""

CLOSING = 2.0
"""Seconds that workers have to exit by themselves."""

SPIN = 2e-4
"""Seconds that a rank polls for a message before it sleeps, if each rank has a core."""

STARTING = 60.0
"""Minimum seconds for workers to import their modules; an exit in the meantime is detected."""

T = TypeVar("T")


class Pool:
    """Ranks `trainer · k` to `trainer · k + k - 1` of `trainers · k`, for the k `places` passed.

    The first place is the caller's own, whose collectives are `rings`, numbered from 0 to
    `ring_count` - 1, each with a separate process group. With several trainers, each with its own
    pool, `endpoints` has one of each; the first hosts the rendezvous. `deadline` is in seconds, by
    default `FLAGS_rpc_deadline`. Raises RendezvousError, RankError or CollectiveError if a worker
    cannot be started or the ranks do not meet.
    """

    def __init__(
        self,
        places: Sequence[Place],
        *,
        endpoints: Sequence[str] = (),
        trainer: int = 0,
        trainers: int = 1,
        ring_count: int = 1,
        deadline: float | None = None,
    ) -> None:
        if not places or len(endpoints) not in (0 if trainers == 1 else trainers, trainers):
            raise ValueError(
                f"a pool needs a place or more and an endpoint for each of {trainers} trainers, "
                f"not {len(places)} places and {len(endpoints)} endpoints"
            )
        self.places = list(places)
        self.first = trainer * len(places)
        self.total = trainers * len(places)
        self.ring_count = ring_count
        self.deadline = rpc_deadline() if deadline is None else deadline
        self._start_limit = self.deadline if endpoints else max(self.deadline, STARTING)
        self.is_open = True
        self._limit: weakref.finalize[..., Pool] | None = None
        self._spin = SPIN if len(places) <= available_processors() else 0.0
        self.workers = [WorkerProcess(self.first + n, self._spin) for n in range(1, len(places))]
        self.rings = Rings(self.deadline)
        self.rings.hooks.append(_hook(self))
        self.rings.children |= {worker.rank for worker in self.workers}
        self._state = SharedRegion.create()
        self._keys: dict[str, tuple[Module, ...]] = {}
        self._running = ""
        self._fed: list[int] = []
        self.forgotten: list[str] = []
        """Scopes to drop before the next step; finalizers, which may run at any time, add to it."""
        self.turn = threading.RLock()
        """For threads that take turns: one at a time may send messages and receive answers."""
        self._owner = os.getpid()
        self._start(list(endpoints))

    @property
    def size(self) -> int:
        """The number of ranks of this machine, including the caller."""
        return len(self.places)

    @property
    def has_state(self) -> bool:
        """Whether `get_state` can return the state, which ends with the workers."""
        return self.is_open

    # Start and end

    def _start(self, endpoints: list[str]) -> None:
        is_alone = self.size == self.total
        has_gpus = any(isinstance(place, CUDAPlace) for place in self.places)
        local = None if endpoints or has_gpus else LocalStore()  # torch's engines need a TCPStore
        listener = None if endpoints or local else listen(LOOPBACK)
        endpoint = endpoints[0] if endpoints else "this process"
        if listener is not None:
            endpoint = "{}:{}".format(*listener.getsockname()[:2])
        shared = Segment.create(SegmentLayout(self.total, self.ring_count)) if is_alone else None
        starter = Starter(
            self.workers, self._settings(endpoint), Common(self._state, shared, local)
        )
        processes = self.workers, self._state, self._owner
        self._finalizer = weakref.finalize(self, shut_down, *processes, grace=0.0)
        try:
            self._limit_threads()
            starter.wait()
            store: StoreConnection | None = local and local_connection(local)
            if listener is not None:
                store = host_store(listener)
            where = NAME, self.first, [endpoint]
            self.rings.create_id(*where, size=self.total, store=store, limit=self._start_limit)
            for ring in range(self.ring_count):
                where = ring, NAME, self.total, self.first
                self.rings.init_ring(*where, shared=shared, spin=self._spin)
            self._receive_all("start of the workers")
        except BaseException:
            self.abort()
            raise
        finally:
            if shared is not None:
                shared.close()

    def _settings(self, endpoint: str) -> SettingsText:
        devices = [p.device if isinstance(p, CUDAPlace) else -1 for p in self.places]
        first, counts = self.first, (self.total, self.ring_count)
        limits = self.deadline, self._start_limit, self._spin

        def text(rank: int) -> str:
            device = devices[rank - first]
            return WorkerSettings(rank, *counts, endpoint, NAME, *limits, device).text()

        return text

    def _limit_threads(self) -> None:
        """Limit the caller to one BLAS thread, as each worker is, while there are several ranks."""
        if self.size > 1:
            torch, blas = loaded_torch(), blas_threads()
            before = torch.get_num_threads() if torch else 0
            if torch:
                torch.set_num_threads(1)
            if blas:
                blas.share()
            self._limit = weakref.finalize(self, _end_limit, before, bool(blas), self._owner)

    def close(self) -> None:
        """Shut down the workers after they have finished; their ranks leave the ring."""
        self._end(CLOSING)

    def abort(self) -> None:
        """Kill the workers: their sockets close, so that nobody waits for them."""
        self._end(0.0)

    def _end(self, grace: float) -> None:
        if not self.is_open or os.getpid() != self._owner:
            return
        self.is_open = False
        self._finalizer.detach()
        shut_down(self.workers, self._state, self._owner, grace=grace)
        if self._limit:
            self._limit()
        self.rings.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    # Modules and state

    def load(self, key: str, modules: Module | Sequence[Module], scope: str = "") -> None:
        """Load a module under a key on every worker, or one on each, with its state in a scope.

        A scope is a name for arrays that modules share on a worker. Raises WorkerError.
        """
        by_worker = [modules] * len(self.workers) if isinstance(modules, Module) else list(modules)
        pairs = list(zip(self.workers, by_worker, strict=True))
        for worker, module in pairs:
            message = {"do": "load", "key": key, "scope": scope}
            self._send(worker, message, [text_value(module.source)])
        self._receive_all(f"loading of {key!r}")
        self._keys[key] = tuple(by_worker)

    def drop(self, keys: Iterable[str] = (), scopes: Iterable[str] = ()) -> None:
        """Drop modules and scopes on every worker; unknown names are ignored."""
        dropped = list(keys)
        for worker in self.workers:
            self._send(worker, {"do": "drop", "keys": dropped, "scopes": list(scopes)})
        self._receive_all("dropping of modules")
        for key in dropped:
            self._keys.pop(key, None)

    def set_state(self, scope: str, arrays: Mapping[str, Array], ranks: Iterable[int] = ()) -> None:
        """Copy arrays into a scope of every worker, or of the workers of these ranks."""
        wanted = set(ranks) or {worker.rank for worker in self.workers}
        for names in _parts(arrays) if wanted else ():
            self._expect_open()
            places = self._state.write([arrays[name] for name in names])
            for worker in self.workers:
                if worker.rank in wanted:
                    message = {"do": "set", "scope": scope, "names": names, "places": places}
                    self._send(worker, message)
            self._receive_all("setting of state", wanted)
        self._state.clear()

    def get_state(self, rank: int, scope: str, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of arrays in a worker's scope. Raises WorkerError for unknown names."""
        (worker,) = [candidate for candidate in self.workers if candidate.rank == rank]
        state: dict[str, Array] = {}
        for name in names:
            self._send(worker, {"do": "get", "scope": scope, "names": [name]})
            ((value,),) = self._receive_all(f"reading of {name!r}", {rank})
            state[name] = cast(Array, value)
        return state

    def share(self, scope: str, name: str, root: int, array: Array) -> None:
        """Copy a variable of the rank `root` into `array` on the first device of every trainer.

        All trainers must call it. `array` has the variable's shape and dtype; that of the root, if
        it is a first device, already has its values.
        """
        like = {"shape": list(array.shape), "dtype": str(array.dtype)}
        for worker in self.workers:
            message = {"do": "share", "scope": scope, "name": name, "root": root, **like}
            self._send(worker, message)
        self._guarded(lambda: self.rings.broadcast(RING, name, root, array))
        self._receive_all(f"reading of {name!r}")

    def set_hierarchy(self, inner: int) -> None:
        """All-reduce in groups of `inner` ranks first, then between these, on every ring."""
        for worker in self.workers:
            self._send(worker, {"do": "hierarchy", "inner": inner})
        for ring in range(self.ring_count):
            self._guarded(lambda ring=ring: self.rings.set_hierarchy(ring, inner))
        self._receive_all("hierarchy")

    # Steps

    def start_run(self, key: str, feeds: Sequence[Mapping[str, Array] | None]) -> None:
        """Start a step of a module on every worker, each with its own feeds by name.

        A worker whose feeds are None is skipped, for modules without collectives. Raises FeedError
        if a feed is missing, and the error that ended a worker.
        """
        if self._running:
            raise CollectiveError(f"a step of {self._running!r} is already in progress")
        self._expect_open()
        while self.forgotten:
            self.drop(scopes=[self.forgotten.pop()])
        modules = self._keys[key]
        self.rings.step += 1
        for worker, module, feed in zip(self.workers, modules, feeds, strict=True):
            if feed is not None:
                message = {"do": "run", "key": key, "step": self.rings.step}
                self._send(worker, message, _ordered(module, feed, worker.rank))
        pairs = zip(self.workers, feeds, strict=True)
        self._fed = [worker.rank for worker, feed in pairs if feed is not None]
        self._running = key

    def finish_run(self) -> list[list[Value]]:
        """Wait for the started step; return copies of the fetches of each worker, by rank.

        Raises WorkerError for an error in a worker, with its traceback, and RankError for a worker
        that ended, stopped or stalled. Either ends the pool.
        """
        key, self._running = self._running, ""
        if not key:
            raise CollectiveError("no step was started")
        if not self._fed:
            return []
        return self._receive_all(f"step {self.rings.step} of {key!r}", self._fed)

    def run(
        self, key: str, feeds: Sequence[Mapping[str, Array] | None], own: Callable[[], T]
    ) -> tuple[T, list[list[Value]]]:
        """Run a step on every worker, and `own` here meanwhile; return its result and their
        fetches.

        An error of `own` ends the pool, and so does Ctrl-C.
        """
        self.start_run(key, feeds)
        return self._guarded(own), self.finish_run()

    # Messages

    def _expect_open(self) -> None:
        if not self.is_open:
            raise CollectiveError("the workers of this pool have ended", hint="make another pool")
        if os.getpid() != self._owner:
            raise CollectiveError("a pool cannot be used in a process that was forked from it")

    def _send(self, worker: WorkerProcess, message: Message, values: Sequence[Value] = ()) -> None:
        self._expect_open()
        try:
            worker.channel.send(message, values)
        except OSError:
            self._diagnose()
        except BaseException:
            self.abort()
            raise

    def _receive_all(self, what: str, ranks: Iterable[int] = ()) -> list[list[Value]]:
        """Receive the reply values of every worker, or of the workers of these ranks."""
        wanted = set(ranks)
        workers = [worker for worker in self.workers if not wanted or worker.rank in wanted]
        try:
            replies = [self._receive(worker, what) for worker in workers]
            pairs = zip(workers, replies, strict=True)
            return [worker.channel.values(reply, copies=True) for worker, reply in pairs]
        except BaseException as error:
            self._fail(error)
            raise

    def _receive(self, worker: WorkerProcess, what: str) -> Message:
        look: Callable[[], None] | None = None
        while not worker.inbox:
            if worker.channel.waits(SLICE):
                message = worker.channel.receive()
                if message is None:
                    self._diagnose()
                worker.inbox.append(message)
            else:
                look = look or self.rings.watch(f"{what} on rank {worker.rank}", worker.rank)
                look()
        reply = worker.inbox.popleft()
        if reply["do"] == "error":
            worker.inbox.appendleft(reply)
            self._diagnose()
        return reply

    def _guarded(self, own: Callable[[], T]) -> T:
        """Run this rank's part of a step; an error in it ends the pool."""
        try:
            return own()
        except BaseException as error:
            self._fail(error)
            raise

    # Failures

    def look(self) -> None:
        """Raise if a worker ended or reported an error; called while the caller waits."""
        if not self.is_open:
            return
        for worker in self.workers:
            worker.drain()
            reported = any(message["do"] == "error" for message in worker.inbox)
            if reported or worker.has_ended():
                self._diagnose()

    def _diagnose(self) -> NoReturn:
        """Raise the error that ended a worker, preferring root causes to consequences."""
        end = monotonic() + SETTLING
        error, is_first = find_cause(self.workers, self.rings, self.first)
        while not is_first and monotonic() < end:
            sleep(SLICE / 10)
            error, is_first = find_cause(self.workers, self.rings, self.first)
        self._fail(error)
        raise error

    def _fail(self, error: BaseException) -> None:
        """End the pool for an error, which the other trainers name as the cause."""
        if self.is_open and self.total > self.size:
            self.rings.fail(error)
        self.abort()


def _end_limit(torch_threads: int, is_shared: bool, owner: int) -> None:
    """Let products use as many threads as before. Does nothing in a forked child."""
    if os.getpid() != owner:
        return
    if is_shared and (blas := blas_threads()):
        blas.unshare()
    if torch_threads and (torch := loaded_torch()):
        torch.set_num_threads(torch_threads)


def _hook(pool: Pool) -> Callable[[], None]:
    """The pool's `look`, without keeping the pool alive."""
    reference = weakref.ref(pool)

    def look() -> None:
        target = reference()
        if target is not None:
            target.look()

    return look


def _ordered(module: Module, feed: Mapping[str, Array], rank: int) -> list[Value]:
    """Return the feeds of a worker in the order of its module; FeedError if one is missing."""
    missing = [tensor.name for tensor in module.feeds if tensor.name not in feed]
    if missing:
        raise FeedError(f"missing feed of rank {rank}: {', '.join(map(repr, missing))}")
    return [np.asarray(feed[tensor.name]) for tensor in module.feeds]


def _parts(arrays: Mapping[str, Array]) -> list[list[str]]:
    """Group names so that each group has up to `PART` bytes, plus at most one array."""
    groups: list[list[str]] = []
    size = PART
    for name, array in arrays.items():
        if size >= PART:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += array.nbytes
    return groups
