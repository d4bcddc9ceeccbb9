"""Rings: the collectives that the code of a module calls, under the global name `collective`.

A ring is a numbered group of ranks. Arrays are C-contiguous NumPy arrays or contiguous tensors.
If a rank fails in any way, the others raise an error that names it, within the deadline.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.collective.agreement import Agreement
from runtime.collective.engine import distributed
from runtime.collective.groups.elements import (
    describe,
    element_name,
    expect_contiguous,
    expect_operation,
    is_tensor,
)
from runtime.collective.groups.segment import Segment
from runtime.collective.hierarchy import make_hierarchy
from runtime.collective.member import Member, take_seat
from runtime.collective.record import RankRecord
from runtime.collective.rendezvous import Seat, StoreConnection
from runtime.collective.ring import Pending, Ring, release, ring_group
from runtime.collective.slices import rpc_deadline
from runtime.collective.tensors import TensorMover, empty_like
from runtime.collective.watchdog import Watchdog
from runtime.collective.work import ErrorPublisher, Look, WorkRunner
from runtime.errors import CollectiveError


class Rings:
    """The rings of one process and their collectives.

    `deadline` is in seconds, `FLAGS_rpc_deadline` by default. Every method that waits raises
    RankError if another rank ended, stopped or stalled, ScheduleError if ranks issue different
    collectives, and CollectiveError for other errors of the engine. After an error these rings can
    no longer be used.
    """

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = rpc_deadline() if deadline is None else deadline
        self.hooks: list[Look] = []
        """Called in every slice of a wait; they raise for failures detected by other means."""
        self.children: set[int] = set()
        """Ranks that are child processes of this one, whose exit a hook detects."""
        self._members: dict[str, Member] = {}
        self._rings: dict[int, Ring] = {}
        self._step = 0
        self._pid = os.getpid()
        self._errors = ErrorPublisher(self._members, self._rings)
        self._runner = WorkRunner(self.deadline, self.hooks, self.children, self._errors)
        self._tensors = TensorMover(self._runner)
        self._agreement = Agreement(self._runner)
        self._finalizer = weakref.finalize(self, _leave, self._members, self._rings, self._pid)

    # Creating rings

    def create_id(
        self,
        name: str,
        rank: int,
        endpoints: Sequence[str],
        *,
        size: int | None = None,
        store: StoreConnection | None = None,
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
        if store is None:
            distributed()  # imported before the timeout starts, and before others can connect
        limits = self.deadline, self.deadline if limit is None else limit
        member = take_seat(seat, *limits, store, self._look_at_hooks)
        watchdog = Watchdog(member.monitor, f"rendezvous {name!r}", -1, self.deadline, self.hooks)
        member.exchange("met", "", watchdog.check)
        member.record.step = self._step
        member.monitor.start()
        self._members[name] = member

    def init_ring(
        self,
        ring: int,
        id_name: str,
        size: int,
        rank: int,
        *,
        shared: Segment | None = None,
        spin: float = 0.0,
    ) -> None:
        """Create the group of a ring over a rendezvous that `create_id` made; once for each ring.

        With `shared`, memory of all ranks of the ring, they exchange host memory through it, and a
        wait polls for `spin` seconds before it sleeps; else by Gloo. Raises CollectiveError if
        there is no rendezvous of this name, or of another size or rank.
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
            new_ring = Ring(ring, member, rank, size, None)
            if size > 1:
                with self._runner.watched(new_ring, f"initialisation of ring {ring}") as check:
                    new_ring.group = ring_group(new_ring, shared, spin, check)
            member.monitor.add_ring(ring)
            self._rings[ring] = new_ring

    def set_hierarchy(self, ring: int, inner: int) -> None:
        """All-reduce in groups of `inner` consecutive ranks first, then between their first ranks.

        Every rank of the ring must call it; ranks that share memory go on with one group. Raises
        ValueError for a size below 1.
        """
        members = self._ring(ring)
        if inner < 1:
            raise ValueError(f"the inner groups of ring {ring} need 1 rank or more, not {inner}")
        if 1 < inner < members.size and not (members.is_hierarchical or members.shares_memory):
            with self._runner.watched(
                members, f"initialisation of the hierarchy of ring {ring}"
            ) as check:
                make_hierarchy(members, inner, check)

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
        self._agreement.lines = schedule

    def check_schedule(self, ring: int, text: str) -> None:
        """Compare the text of a program's collectives between all ranks, once for each text.

        Raises ScheduleError, on every rank, with the first different line and the ranks.
        """
        members = self._ring(ring)
        if members.size > 1:
            self._expect_whole()
            self._agreement.expect_same_schedule(members, text)

    def fail(self, error: BaseException) -> None:
        """Publish that an error ended the step of this rank, so that others can name it."""
        self._errors.publish(error)

    def close(self) -> None:
        """Publish that this rank has finished, and drop all rings."""
        self._finalizer()
        self._rings.clear()
        self._members.clear()

    def watch(self, what: str, rank: int, ring: int = 0) -> Look:
        """Return a function that raises for a failed rank, while this one waits for `rank`."""
        members = self._ring(ring)
        return self._runner.watchdog(members, what, waits_for=rank).check

    def record_of(self, ring: int, rank: int) -> RankRecord | None:
        """The last known record of another rank; None before the ring was created."""
        members = self._rings.get(ring)
        return None if members is None else members.member.monitor.known(rank)

    # Collectives

    def all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        """Reduce `array` over all ranks, in place: `op` is `sum`, `max`, `min` or `prod`."""
        self.start_all_reduce(ring, name, op, array)
        self.wait(ring, name)

    def start_all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        """Start an `all_reduce`; `array` must not be accessed until `wait` was called."""
        expect_operation(op)
        members = self._issue(ring, "all_reduce", name, f"{op}, {describe(array)}")
        if name in members.pending:
            raise CollectiveError(f"all_reduce of {name!r} on ring {ring} is already in progress")
        expect_contiguous(array, writes=True)
        what = members.member.record.call
        stages = self._tensors.all_reduce_stages(members, array, op) if members.size > 1 else []
        first = self._runner.start(members, what, stages.pop(0)) if stages else None
        members.pending[name] = Pending(what, first, stages, members.member.record.count(ring))

    def wait(self, ring: int, name: str) -> None:
        """Wait for the `all_reduce` that was started under this name."""
        members = self._ring(ring)
        pending = members.pending.pop(name, None)
        if pending is None:
            raise CollectiveError(f"no all_reduce of {name!r} was started on ring {ring}")
        self._runner.finish(members, pending)

    def reduce(self, ring: int, name: str, op: str, root: int, array: Any) -> None:
        """Reduce to the rank `root`, in place there; other ranks keep their values."""
        expect_operation(op)
        members = self._issue(ring, "reduce", name, f"{op}, root {root}, {describe(array)}")
        is_root = _expect_root(members, root)
        expect_contiguous(array, writes=is_root)
        with self._tensors.moved(members, array, copies_back=is_root) as (group, moved):
            self._runner.run(members, lambda: group.reduce(moved, op, root))

    def broadcast(self, ring: int, name: str, root: int, array: Any) -> None:
        """Copy the values of the rank `root` to all ranks, in place."""
        members = self._issue(ring, "broadcast", name, f"root {root}, {describe(array)}")
        is_root = _expect_root(members, root)
        expect_contiguous(array, writes=not is_root)
        with self._tensors.moved(members, array, copies_back=not is_root) as (group, moved):
            self._runner.run(members, lambda: group.broadcast(moved, root))

    def all_gather(self, ring: int, name: str, array: Any) -> Any:
        """The arrays of all ranks in rank order, concatenated along axis 0: [size · n, ...]."""
        members = self._issue(ring, "all_gather", name, describe(array))
        rows, rest = (array.shape[0], tuple(array.shape[1:])) if array.ndim else (1, ())
        result = empty_like(array, (members.size * rows, *rest))
        self._tensors.gather(members, result, array)
        return result

    def all_gather_rows(self, ring: int, name: str, rows: Any, values: Any) -> tuple[Any, Any]:
        """The rows (int64 [n]) and values ([n, ...]) of all ranks, in rank order; n may differ.

        Arrays of the host are one message, unless some rank has more rows than ever before.
        """
        row = f"{element_name(values)}[*, {', '.join(map(str, values.shape[1:]))}]"
        members = self._issue(ring, "all_gather_rows", name, f"{element_name(rows)}, {row}")
        if not is_tensor(rows):
            return self._tensors.gather_rows(members, name, rows, values)
        mine = np.array([len(rows)], "int64")
        counts = np.empty(members.size, "int64")
        self._tensors.gather(members, counts, mine)
        parts = [
            self._tensors.gather_padded(members, array, counts.tolist()) for array in (rows, values)
        ]
        return parts[0], parts[1]

    def reduce_scatter(self, ring: int, name: str, op: str, array: Any) -> Any:
        """Reduce, and return this rank's part of axis 0: [n / size, ...].

        Raises ValueError if axis 0 is not a multiple of the ring's size.
        """
        expect_operation(op)
        members = self._issue(ring, "reduce_scatter", name, f"{op}, {describe(array)}")
        result = empty_like(array, _part_shape(members, array, name))
        if members.size == 1:
            result[...] = array
            return result
        with self._tensors.parted(members, array, result) as (group, moved, part):
            self._runner.run(members, lambda: group.reduce_scatter(part, moved, op))
        return result

    def scatter(self, ring: int, name: str, root: int, array: Any) -> Any:
        """Return this rank's part of axis 0 of the root's array: [n / size, ...].

        Every rank passes an array of this shape; only the root's values are read.
        """
        members = self._issue(ring, "scatter", name, f"root {root}, {describe(array)}")
        _expect_root(members, root)
        result = empty_like(array, _part_shape(members, array, name))
        if members.size == 1:
            result[...] = array
            return result
        with self._tensors.parted(members, array, result) as (group, moved, part):
            self._runner.run(members, lambda: group.scatter(part, moved, root))
        return result

    def barrier(self, ring: int, name: str) -> None:
        """Wait until every rank has called this."""
        members = self._issue(ring, "barrier", name, "")
        with self._tensors.moved(members, np.zeros(1, "int32")) as (group, moved):
            self._runner.run(members, lambda: group.all_reduce(moved, "sum"), of_all=True)

    # The state of rings

    def _look_at_hooks(self) -> None:
        for hook in self.hooks:
            hook()

    def _ring(self, ring: int) -> Ring:
        entry = self._rings.get(ring)
        if entry is None:
            raise CollectiveError(
                f"ring {ring} was never initialised here",
                hint="run the startup program first (c_gen_nccl_id and c_comm_init), in the same "
                "scope, or run the program with ParallelExecutor or CompiledProgram",
            )
        return entry

    def _expect_whole(self) -> None:
        if self._errors.first:
            raise CollectiveError(
                f"no collective can run after an error: {self._errors.first}",
                hint="start all ranks again, from the last checkpoint",
            )
        if os.getpid() != self._pid:
            raise CollectiveError(
                "the rings of a process cannot be used in a process that was forked from it"
            )

    def _issue(self, ring: int, kind: str, name: str, details: str) -> Ring:
        """Count a collective, and compare it with the other ranks if it is new."""
        members = self._ring(ring)
        self._expect_whole()
        if members.size > 1:
            self._agreement.expect_same_history(members)
        call = f"{kind} of {name!r} ({details})"
        members.member.monitor.note(ring, call)
        if members.size > 1:
            self._agreement.expect_same_call(members, call)
        return members


def _part_shape(ring: Ring, array: Any, name: str) -> tuple[int, ...]:
    """The shape of one rank's part of axis 0; ValueError if axis 0 is not divisible."""
    rows = int(array.shape[0]) if array.ndim else 0
    if not array.ndim or rows % ring.size:
        raise ValueError(
            f"{name!r} of shape {tuple(array.shape)} cannot be divided among {ring.size} ranks: "
            "axis 0 must be a multiple of it"
        )
    return (rows // ring.size, *array.shape[1:])


def _expect_root(ring: Ring, root: int) -> bool:
    """Return whether this rank is the root; ValueError if the ring has no such rank."""
    if not 0 <= root < ring.size:
        raise ValueError(f"the root must be from 0 to {ring.size - 1}, but it is {root}")
    return ring.rank == root


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
