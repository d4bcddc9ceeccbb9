"""Collectives of replicas: the last rank to arrive computes for all, from the arrays of all ranks.

Reductions combine values in rank order, so that all ranks have the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NoReturn

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.collective.schedule import different_calls
from runtime.errors import CollectiveError
from runtime.replicas.turns import Turns

UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}

Compute = Callable[[list[Any]], Sequence[Any]]
"""Computes a collective from the values of all ranks, in place or as a result for each rank."""


@dataclass(slots=True)
class CollectiveCall:
    """What a rank passes to a collective: all ranks must pass equal ones."""

    kind: str
    name: str
    details: tuple[object, ...]

    def __str__(self) -> str:
        details = ", ".join(map(str, self.details))
        return f"{self.kind} of {self.name!r} ({details})"


@dataclass(slots=True)
class PendingCollective:
    """A collective in progress: the values of the ranks that have arrived, and those that wait."""

    call: CollectiveCall
    first: int
    values: list[Any]
    missing: int
    is_complete: bool = False
    waiting: list[int] = field(default_factory=list[int])
    results: Sequence[Any] = ()


class Collectives:
    """The collectives of `size` ranks that take turns."""

    def __init__(self, size: int, turns: Turns) -> None:
        self.size = size
        self._turns = turns
        self._open: dict[tuple[int, int], PendingCollective] = {}

    def join(
        self, place: tuple[int, int], rank: int, call: CollectiveCall, value: Any, compute: Compute
    ) -> PendingCollective:
        """Add the value of a rank to a collective, by its ring and its number there; the last one
        to arrive computes it. Raises ScheduleError if another rank issued another collective.
        """
        with self._turns.lock:
            pending = self._open.get(place)
            if pending is None:
                pending = PendingCollective(call, rank, [None] * self.size, self.size)
                self._open[place] = pending
            elif pending.call != call:
                ring, number = place
                first, this = (pending.first, str(pending.call)), (rank, str(call))
                raise different_calls(ring, number, first, this)
            pending.values[rank] = value
            pending.missing -= 1
            if pending.missing:
                return pending
            del self._open[place]
        pending.results = compute(pending.values)
        pending.values = []
        with self._turns.lock:
            pending.is_complete = True
            self._turns.resume(pending.waiting)
        return pending

    def wait(self, pending: PendingCollective, rank: int) -> None:
        """Wait until a collective is complete."""
        self._turns.lock.acquire()
        if pending.is_complete:
            self._turns.lock.release()
            return
        pending.waiting.append(rank)
        self._turns.pause(rank)


class ReplicaRings:
    """The object `collective` of one rank; see `runtime.collective.Rings` for the semantics.

    Every ring has all ranks. Raises ScheduleError if ranks issue different collectives.
    """

    def __init__(self, collectives: Collectives, rank: int) -> None:
        self._collectives = collectives
        self._rank = rank
        self._counts: dict[int, int] = {}
        self._started: dict[tuple[int, str], PendingCollective] = {}

    def rank(self, ring: int = 0) -> int:
        """The rank of this replica."""
        return self._rank

    def size(self, ring: int = 0) -> int:
        """The number of ranks."""
        return self._collectives.size

    def has_ring(self, ring: int) -> bool:
        """Whether a ring is initialised: all are."""
        return True

    def enter(self, schedule: tuple[str, ...]) -> None:
        """Do nothing: each call is compared."""

    def create_id(self, name: str, *_: object) -> NoReturn:
        """Raise CollectiveError: the ranks have met."""
        raise CollectiveError(
            f"rendezvous {name!r} cannot be made by devices of one process, which have met already",
            hint="run the transpiled program with a plain Executor, in one process a device",
        )

    def init_ring(self, ring: int, id_name: str, *_: object) -> NoReturn:
        """Raise CollectiveError: the ranks have met."""
        self.create_id(id_name)

    def all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Reduce `array` over all ranks, in place: `op` is `sum`, `max`, `min` or `prod`."""
        self.start_all_reduce(ring, name, op, array)
        self.wait(ring, name)

    def start_all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Start an `all_reduce`; `array` must not be accessed until `wait` was called."""
        _expect_operation(op)
        if (ring, name) in self._started:
            raise CollectiveError(f"all_reduce of {name!r} on ring {ring} is already in progress")

        def compute(arrays: list[Array]) -> tuple[()]:
            first, *others = arrays
            _fold(op, arrays, first)
            for other in others:
                other[...] = first
            return ()

        call = CollectiveCall("all_reduce", name, (op, array.dtype, array.shape))
        self._started[ring, name] = self._join(ring, call, array, compute)

    def wait(self, ring: int, name: str) -> None:
        """Wait for the `all_reduce` that was started under this name."""
        pending = self._started.pop((ring, name), None)
        if pending is None:
            raise CollectiveError(f"no all_reduce of {name!r} was started on ring {ring}")
        self._collectives.wait(pending, self._rank)

    def reduce(self, ring: int, name: str, op: str, root: int, array: Array) -> None:
        """Reduce to the rank `root`, in place there; other ranks keep their values."""
        _expect_operation(op)
        self._expect_root(root)

        def compute(arrays: list[Array]) -> tuple[()]:
            if root < 2:
                _fold(op, arrays, arrays[root])
            else:
                arrays[root][...] = _fold(op, arrays, np.empty_like(arrays[0]))
            return ()

        call = CollectiveCall("reduce", name, (op, root, array.dtype, array.shape))
        self._call(ring, call, array, compute)

    def broadcast(self, ring: int, name: str, root: int, array: Array) -> None:
        """Copy the values of the rank `root` to all ranks, in place."""
        self._expect_root(root)

        def compute(arrays: list[Array]) -> tuple[()]:
            for rank, other in enumerate(arrays):
                if rank != root:
                    other[...] = arrays[root]
            return ()

        call = CollectiveCall("broadcast", name, (root, array.dtype, array.shape))
        self._call(ring, call, array, compute)

    def all_gather(self, ring: int, name: str, array: Array) -> Array:
        """The arrays of all ranks in rank order, concatenated along axis 0: [size · n, ...]."""

        def compute(arrays: list[Array]) -> list[Array]:
            parts = [np.atleast_1d(each) for each in arrays]
            return [np.concatenate(parts) for _ in arrays]

        call = CollectiveCall("all_gather", name, (array.dtype, array.shape))
        return self._call(ring, call, array, compute)

    def all_gather_rows(
        self, ring: int, name: str, rows: Array, values: Array
    ) -> tuple[Array, Array]:
        """The rows (int64 [n]) and values ([n, ...]) of all ranks, in rank order; n may differ."""

        def compute(pairs: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
            every_rows, every_values = zip(*pairs, strict=True)
            return [(np.concatenate(every_rows), np.concatenate(every_values)) for _ in pairs]

        call = CollectiveCall("all_gather_rows", name, (values.dtype, values.shape[1:]))
        return self._call(ring, call, (rows, values), compute)

    def reduce_scatter(self, ring: int, name: str, op: str, array: Array) -> Array:
        """Reduce, and return this rank's part of axis 0: [n / size, ...].

        Raises ValueError if axis 0 is not a multiple of the number of ranks.
        """
        _expect_operation(op)
        self._expect_parts(name, array)

        def compute(arrays: list[Array]) -> list[Array]:
            return np.split(_fold(op, arrays, np.empty_like(arrays[0])), len(arrays))

        call = CollectiveCall("reduce_scatter", name, (op, array.dtype, array.shape))
        return self._call(ring, call, array, compute)

    def scatter(self, ring: int, name: str, root: int, array: Array) -> Array:
        """Return this rank's part of axis 0 of the root's array: [n / size, ...].

        Every rank passes an array of this shape; only the root's values are read.
        """
        self._expect_root(root)
        self._expect_parts(name, array)

        def compute(arrays: list[Array]) -> list[Array]:
            return np.split(arrays[root].copy(), len(arrays))

        call = CollectiveCall("scatter", name, (root, array.dtype, array.shape))
        return self._call(ring, call, array, compute)

    def barrier(self, ring: int, name: str) -> None:
        """Wait until every rank has called this."""
        self._call(ring, CollectiveCall("barrier", name, ()), None, lambda _: ())

    def _call(self, ring: int, call: CollectiveCall, value: Any, compute: Compute) -> Any:
        """Take part in a collective; return this rank's result."""
        pending = self._join(ring, call, value, compute)
        self._collectives.wait(pending, self._rank)
        return pending.results[self._rank] if pending.results else None

    def _join(
        self, ring: int, call: CollectiveCall, value: Any, compute: Compute
    ) -> PendingCollective:
        self._counts[ring] = number = self._counts.get(ring, 0) + 1
        return self._collectives.join((ring, number), self._rank, call, value, compute)

    def _expect_root(self, root: int) -> None:
        if not 0 <= root < self._collectives.size:
            raise ValueError(f"the root must be from 0 to {self._collectives.size - 1}, not {root}")

    def _expect_parts(self, name: str, array: Array) -> None:
        size = self._collectives.size
        if not array.ndim or len(array) % size:
            raise ValueError(
                f"{name!r} of shape {array.shape} cannot be divided among {size} ranks: "
                "axis 0 must be a multiple of it"
            )


def _expect_operation(op: str) -> None:
    if op not in UFUNCS:
        raise ValueError(f"a reduction is one of {', '.join(UFUNCS)}, not {op!r}")


def _fold(op: str, arrays: Sequence[Array], out: Array) -> Array:
    """Reduce arrays in their order into `out`, which may be one of the first two."""
    ufunc = UFUNCS[op]
    with np.errstate(all="ignore"):
        ufunc(arrays[0], arrays[1], out=out)
        for array in arrays[2:]:
            ufunc(out, array, out=out)
    return out
