"""Collectives between the processes of a job, workers only or all, over Gloo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from compiler.ir.types import Array
from runtime.collective.rendezvous import Seat, StoreConnection, join_store, open_store
from runtime.collective.rings import Rings

T = TypeVar("T")

MODES = ("sum", "min", "max")
"""The reductions of `all_reduce_worker`."""


GROUPS = ("workers", "all", "servers")
"""The groups of processes; the index is the ring."""


class MockBarrier:
    """The collectives of a process that is alone, where scripts take the place of others."""

    def barrier(self) -> None:
        """Return at once."""

    def barrier_all(self) -> None:
        """Return at once."""

    def all_reduce(self, obj: T) -> T:
        """Return the value."""
        return obj

    def all_gather(self, obj: T) -> list[T]:
        """Return the value as a list of one."""
        return [obj]


class Meeting:
    """The processes of a job at one endpoint: rings of the workers, of the servers and of all.

    Connections are made at the first collective. Worker i has rank i of its rings, server j has
    rank j among the servers and `workers` + j among all. Worker 0 hosts the rendezvous from its
    first collective on, or from `host`. `deadline` is the timeout of a collective in seconds, by
    default FLAGS_rpc_deadline.
    """

    def __init__(
        self, endpoint: str, workers: int, servers: int, rank: int, deadline: float | None = None
    ) -> None:
        self._endpoint = endpoint
        self._workers = workers
        self._servers = servers
        self._deadline = deadline
        self._rank = rank
        self._rings: Rings | None = None
        self._store: StoreConnection | None = None

    @property
    def is_worker(self) -> bool:
        """Whether this process is among the workers."""
        return self._rank < self._workers

    def host(self) -> None:
        """Host the rendezvous from now on, for servers that meet before any worker does.

        Does nothing on processes other than worker 0, and for fewer than two servers. Raises
        RendezvousError if the endpoint is in use.
        """
        if self._rank == 0 and self._servers > 1 and self._store is None:
            self._store = open_store(Seat("host", 0, 1, (self._endpoint,)), 0)

    def all_reduce(self, values: Array, mode: str) -> Array:
        """Reduce an array over the workers; the result is a new array."""
        result = np.array(values)
        self._joined("workers").all_reduce(0, f"all_reduce_worker {mode}", mode, result)
        return result

    def gather(self, value: object, group: str) -> list[Any]:
        """Gather one number from every process of a group, in rank order."""
        rings = self._joined(self._named(group))
        ring = GROUPS.index(self._named(group))
        return rings.all_gather(ring, f"gather {group}", np.asarray(value).reshape(1)).tolist()

    def barrier(self, group: str) -> None:
        """Wait until every process of a group has called this."""
        named = self._named(group)
        if self._seat(named)[1] > 1:
            self._joined(named).barrier(GROUPS.index(named), "barrier")

    def close(self) -> None:
        """Leave, and notify the other processes."""
        if self._rings is not None:
            self._rings.close()
        self._rings = self._store = None

    def _named(self, group: str) -> str:
        """Resolve a group: without servers, all processes are the workers."""
        return "workers" if group == "all" and not self._servers else group

    def _seat(self, group: str) -> tuple[int, int]:
        """This process's rank in a group, and the size of the group."""
        if group == "servers":
            return self._rank - self._workers, self._servers
        return self._rank, self._workers + (self._servers if group == "all" else 0)

    def _joined(self, group: str) -> Rings:
        """The rings, with that of a group initialised."""
        rings = self._rings = self._rings or Rings(self._deadline)
        ring, (rank, size) = GROUPS.index(group), self._seat(group)
        if not rings.has_ring(ring):
            is_guest = group == "servers"
            store = join_store(self._endpoint, rings.deadline) if is_guest else None
            rings.create_id(group, rank, [self._endpoint], size=size, store=store)
            rings.init_ring(ring, group, size, rank)
        return rings


def as_vector(values: Sequence[float] | Array, what: str) -> Array:
    """Convert numbers to a 1-D array of int64 or float64, or of the array's own dtype.

    Raises ValueError for several dimensions and TypeError for non-numbers.
    """
    vector = np.asarray(values)
    if vector.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, but has the shape {vector.shape}")
    if not np.issubdtype(vector.dtype, np.number):
        raise TypeError(f"{what} must be numbers, not {vector.dtype}")
    return vector
