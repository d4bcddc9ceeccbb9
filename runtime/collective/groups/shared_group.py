"""SharedGroup: the collectives of ranks that share memory, which copy through its buffers.

A collective is a pipeline over the chunks of an array: ranks write a chunk of their values, and
read that of the others a barrier later. Reductions combine values in rank order, so all ranks have
the same bits in every run: each rank reduces a short array by itself, and of a long one a slice,
which the others read a barrier later. Nothing runs in the background: a collective in progress
proceeds whenever its rank starts or awaits one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.collective.groups.elements import host_array
from runtime.collective.groups.segment import LANES, RingLane, Segment
from runtime.collective.slices import SLICE
from runtime.errors import CollectiveError

UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}

SHORT_BYTES = 1 << 18
"""Bytes of the arrays of all ranks that each rank reduces by itself: cheaper than a barrier."""

PATIENCE = 1e-3
"""Seconds between looks at other collectives in progress, for which other ranks may wait."""

LINE = 64
"""The slice of a rank begins at a multiple of this many elements: in a cache line of its own."""

Stage = Callable[[Array, int], None]
"""A stage of a pipeline, called with the buffers of a chunk, uint8 [ranks, chunk], and its number.
"""


class SharedWork:
    """A collective in progress in a lane; it proceeds with the others of its group."""

    def __init__(self, group: SharedGroup, lane: RingLane, steps: Generator[None]) -> None:
        self.lane = lane
        self.is_complete = False
        self._group = group
        self._steps = steps

    def done(self) -> bool:
        """Wait one slice and return whether the work is complete.

        Raises CollectiveError if the arrays of ranks have different sizes.
        """
        return self._group.complete(self, SLICE)

    def proceed(self) -> None:
        """Run the steps for which no other rank is missing."""
        while not self.is_complete and self.lane.has_passed(0.0):
            self.is_complete = next(self._steps, self) is self


class SharedGroup:
    """The collectives of the ranks of a ring, over the lanes of a segment in turn.

    `spin` is in seconds: how long a wait polls before it sleeps.
    """

    def __init__(self, segment: Segment, ring: int, rank: int, spin: float) -> None:
        self._rank = rank
        self._size = segment.layout.ranks
        self._chunk = segment.layout.chunk
        self._lanes = segment.lanes(ring, rank, spin)
        self._count = 0
        self._works: list[SharedWork] = []

    def all_reduce(self, value: Any, operation: str) -> SharedWork:
        """Reduce in place on every rank."""
        array = host_array(value)
        return self._reduction(array, array, UFUNCS[operation])

    def reduce(self, value: Any, operation: str, root: int) -> SharedWork:
        """Reduce in place on the root; other ranks keep their values."""
        array = host_array(value)
        return self._reduction(array, array if self._rank == root else None, UFUNCS[operation])

    def broadcast(self, value: Any, root: int) -> SharedWork:
        """Copy the root's values to every rank."""
        array, step = host_array(value).view(np.uint8), self._size * self._chunk

        def write(buffers: Array, number: int) -> None:
            part = array[number * step :][:step]
            buffers.reshape(-1)[: len(part)] = part

        def read(buffers: Array, number: int) -> None:
            part = array[number * step :][:step]
            part[...] = buffers.reshape(-1)[: len(part)]

        stages = [write, None] if self._rank == root else [None, read]
        return self._start(array.nbytes, step, stages)

    def all_gather(self, result: Any, value: Any) -> SharedWork:
        """Copy the values of all ranks, in rank order, into `result`."""
        array, step = host_array(value).view(np.uint8), self._chunk
        rows = host_array(result).view(np.uint8).reshape(self._size, array.size)

        def write(buffers: Array, number: int) -> None:
            part = array[number * step :][:step]
            buffers[self._rank, : len(part)] = part

        def read(buffers: Array, number: int) -> None:
            part = rows[:, number * step :][:, :step]
            part[...] = buffers[:, : part.shape[1]]

        return self._start(array.nbytes, step, [write, read])

    def reduce_scatter(self, result: Any, value: Any, operation: str) -> SharedWork:
        """Reduce, and store this rank's part of axis 0 in `result`."""
        part, ufunc = host_array(result), UFUNCS[operation]
        rows = host_array(value).reshape(self._size, part.size)
        step = self._chunk // part.itemsize // self._size

        def sections(buffers: Array) -> Array:
            """The buffers as [from rank, to rank, element]."""
            used = buffers.view(part.dtype)[:, : self._size * step]
            return used.reshape(self._size, self._size, step)

        def write(buffers: Array, number: int) -> None:
            chunk = rows[:, number * step :][:, :step]
            sections(buffers)[self._rank, :, : chunk.shape[1]] = chunk

        def read(buffers: Array, number: int) -> None:
            chunk = part[number * step :][:step]
            _combine(ufunc, sections(buffers)[:, self._rank, : len(chunk)], chunk)

        return self._start(part.nbytes, step * part.itemsize, [write, read])

    def scatter(self, result: Any, value: Any, root: int) -> SharedWork:
        """Copy this rank's part of axis 0 of the root's values into `result`."""
        part, step = host_array(result).view(np.uint8), self._chunk
        rows = host_array(value).view(np.uint8).reshape(self._size, part.size)

        def write(buffers: Array, number: int) -> None:
            chunk = rows[:, number * step :][:, :step]
            buffers[:, : chunk.shape[1]] = chunk

        def read(buffers: Array, number: int) -> None:
            chunk = part[number * step :][:step]
            chunk[...] = buffers[self._rank, : len(chunk)]

        return self._start(part.nbytes, step, [write if self._rank == root else None, read])

    def close(self) -> None:
        """Drop the views of the shared memory."""
        self._lanes.clear()

    def abandon(self) -> None:
        """Do nothing: no thread and no other rank needs this one's views."""

    def complete(self, work: SharedWork, seconds: float) -> bool:
        """Wait at most `seconds` for a work, while the others in progress proceed too."""
        self._proceed()
        end = monotonic() + seconds
        while not work.is_complete:
            left = end - monotonic()
            if left <= 0.0:
                return False
            work.lane.has_passed(left if len(self._works) == 1 else min(left, PATIENCE))
            self._proceed()
        return True

    def _reduction(self, array: Array, target: Array | None, ufunc: np.ufunc) -> SharedWork:
        """Reduce an array of every rank into `target`, if this rank has one."""
        step, dtype = self._chunk // array.itemsize, array.dtype

        def write(buffers: Array, number: int) -> None:
            part = array[number * step :][:step]
            buffers.view(dtype)[self._rank, : len(part)] = part

        def reduce(buffers: Array, number: int) -> None:
            part = _slice(min(step, array.size - number * step), self._rank, self._size)
            rows = buffers.view(dtype)[:, part]
            _combine(ufunc, rows, rows[0])

        def read(buffers: Array, number: int) -> None:
            assert target is not None
            part = target[number * step :][:step]
            part[...] = buffers.view(dtype)[0, : len(part)]

        def read_all(buffers: Array, number: int) -> None:
            assert target is not None
            _combine(ufunc, buffers.view(dtype)[:, : array.size], target)

        if array.nbytes * self._size <= SHORT_BYTES:
            stages = [write, None if target is None else read_all]
        else:
            stages = [write, reduce, None if target is None else read]
        return self._start(array.nbytes, step * array.itemsize, stages)

    def _start(self, nbytes: int, step: int, stages: Sequence[Stage | None]) -> SharedWork:
        """Start a pipeline over chunks of `step` bytes, in the next lane."""
        lane = self._lanes[self._count % LANES]
        self._count += 1
        work = SharedWork(self, lane, self._steps(lane, nbytes, -(-nbytes // step) or 1, stages))
        self._works.append(work)
        self._proceed()
        return work

    def _steps(
        self, lane: RingLane, nbytes: int, chunks: int, stages: Sequence[Stage | None]
    ) -> Generator[None]:
        """Run stage s of chunk c in step c + s, and yield at the barriers between steps.

        A rank that does nothing in the last step does not wait for it.
        """
        lane.sizes()[self._rank] = nbytes
        steps = chunks + len(stages) - 1
        for step in range(steps):
            for age, stage in reversed([*enumerate(stages)]):
                if stage is not None and 0 <= step - age < chunks:
                    stage(lane.buffers(age), step - age)
            if step + 1 == steps:
                return
            lane.arrive()
            if step + 2 == steps and stages[-1] is None:
                return
            yield
            if step == 0:
                self._expect_equal(lane.sizes(1).tolist(), nbytes)

    def _expect_equal(self, sizes: Sequence[int], nbytes: int) -> None:
        """Raise CollectiveError if a rank has an array of another size."""
        if sizes.count(nbytes) < self._size:
            rank = next(rank for rank, size in enumerate(sizes) if size != nbytes)
            raise CollectiveError(
                f"rank {rank} exchanges {sizes[rank]} bytes and rank {self._rank} {nbytes}",
                hint="all ranks must run the same program on equal shapes",
            )

    def _proceed(self) -> None:
        """Run what can be run of all works; of a lane only the first."""
        busy: list[RingLane] = []
        for work in self._works:
            if work.lane not in busy:
                work.proceed()
                if not work.is_complete:
                    busy.append(work.lane)
        self._works = [work for work in self._works if not work.is_complete]


def _combine(ufunc: np.ufunc, rows: Array, out: Array) -> None:
    """Reduce rows in their order; `out` may be the first."""
    with np.errstate(all="ignore"):  # there may be anything between the parts of a bucket
        ufunc(rows[0], rows[1], out=out)
        for row in rows[2:]:
            ufunc(out, row, out=out)


def _slice(count: int, rank: int, ranks: int) -> slice:
    """The part of `count` elements that a rank reduces.

    >>> _slice(200, 0, 3), _slice(200, 2, 3)
    (slice(0, 64, None), slice(128, 200, None))
    """
    lines = -(-count // LINE)
    first, end = lines * rank // ranks * LINE, lines * (rank + 1) // ranks * LINE
    return slice(min(first, count), min(end, count))
