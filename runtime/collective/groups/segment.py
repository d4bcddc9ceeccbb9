"""Segment: memory of one machine through which its ranks exchange arrays, in an unnamed file.

Each ring has some lanes, each for one collective at a time. A lane has a barrier and three sets of
buffers, with a buffer for each rank. Barriers divide time into steps, and step n uses set n mod 3:
what is written in a step may be read in the next two, since nobody begins the third before all have
ended the second.
"""

from __future__ import annotations

import mmap
import os

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.collective.groups.semaphores import STRIDE, Semaphore
from runtime.collective.slices import Spin
from runtime.errors import CollectiveError
from runtime.native.addresses import documented_address

LANES = 4
"""Collectives of a ring that may be in progress at once."""

SETS = 3
"""Sets of buffers of a lane."""

SET_BYTES = 1 << 20
"""Bytes of a set of buffers, unless there are so many ranks that `MIN_CHUNK` needs more."""

MIN_CHUNK = 1 << 16
PAGE = 1 << 12


@dataclass(frozen=True)
class SegmentLayout:
    """The sizes in bytes of a segment of `ranks` ranks with `rings` rings."""

    ranks: int
    rings: int

    @property
    def chunk(self) -> int:
        """The size of a buffer."""
        return max(MIN_CHUNK, SET_BYTES // self.ranks // PAGE * PAGE)

    @property
    def barrier(self) -> int:
        """The size of a barrier: its semaphores, and the sizes of the ranks' arrays."""
        return -(-(self.semaphores + SETS * self.ranks * 8) // PAGE) * PAGE

    @property
    def semaphores(self) -> int:
        """The size of the semaphores of a barrier: one for each rank, and two."""
        return (2 + self.ranks) * STRIDE

    @property
    def lane(self) -> int:
        """The size of a lane: a barrier and its buffers."""
        return self.barrier + SETS * self.ranks * self.chunk

    @property
    def total(self) -> int:
        """The size of the file, whose pages are allocated on first use."""
        return self.rings * LANES * self.lane


class Segment:
    """The shared memory of the ranks of a machine, behind a descriptor.

    Raises CollectiveError if the file has not the size of the layout.
    """

    def __init__(self, descriptor: int, layout: SegmentLayout) -> None:
        size = os.fstat(descriptor).st_size
        if size != layout.total:
            raise CollectiveError(
                f"the shared memory of {layout.ranks} ranks with {layout.rings} rings has "
                f"{layout.total} bytes, but this file has {size}"
            )
        self.descriptor = descriptor
        self.layout = layout
        self._memory: Array = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)

    @staticmethod
    def create(layout: SegmentLayout) -> Segment:
        """Create a segment, in memory that is freed with its last descriptor and mapping."""
        descriptor = os.memfd_create("collectives", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, layout.total)
        segment = Segment(descriptor, layout)
        for ring in range(layout.rings):
            for lane in segment.lanes(ring, 0):
                lane.initialise()
        return segment

    def close(self) -> None:
        """Close the descriptor; the mapping ends with the last view of it."""
        os.close(self.descriptor)

    def lanes(self, ring: int, rank: int, spin: float = 0.0) -> list[RingLane]:
        """The lanes of a ring, as one rank uses them; its waits poll for `spin` seconds first."""
        size, first = self.layout.lane, ring * LANES
        parts = [self._memory[n * size : (n + 1) * size] for n in range(first, first + LANES)]
        return [RingLane(part, self.layout, rank, spin) for part in parts]


class RingLane:
    """The barrier and the buffers of one collective at a time, as one rank uses them.

    The barrier has a ticket for each rank but the last one to arrive, which finds none, puts them
    back and releases the others.
    """

    def __init__(self, memory: Array, layout: SegmentLayout, rank: int, spin: float) -> None:
        self._ranks, self._rank, self._spin = layout.ranks, rank, Spin(spin)
        sizes = memory[layout.semaphores :][: SETS * layout.ranks * 8]
        self._sizes = sizes.view(np.int64).reshape(SETS, layout.ranks)
        self._sets = memory[layout.barrier :].reshape(SETS, layout.ranks, layout.chunk)
        first = documented_address(memory)
        semaphores = [Semaphore(first + n * STRIDE) for n in range(2 + layout.ranks)]
        self._tickets, self._arrived, *self._released = semaphores
        self._step = 0
        self._has_passed = True

    def initialise(self) -> None:
        """Set the semaphores, before any rank uses them."""
        self._tickets.initialise(self._ranks - 1)
        for semaphore in (self._arrived, *self._released):
            semaphore.initialise(0)

    def buffers(self, age: int = 0) -> Array:
        """The buffers of all ranks of the step that was `age` steps ago, uint8 [ranks, chunk]."""
        return self._sets[(self._step - age) % SETS]

    def sizes(self, age: int = 0) -> Array:
        """The sizes of arrays that ranks wrote `age` steps ago, int64 [ranks]."""
        return self._sizes[(self._step - age) % SETS]

    def arrive(self) -> None:
        """End this step of this rank, whose writes others see in the next."""
        self._arrived.post()
        self._has_passed = False
        if self._tickets.try_take():
            return
        for _ in range(self._ranks):  # acquires the writes of every rank
            while not self._arrived.take(1.0):  # they posted it before they took their tickets
                pass
        for _ in range(self._ranks - 1):
            self._tickets.post()
        for rank in range(self._ranks):
            if rank != self._rank:
                self._released[rank].post()
        self._advance()

    def has_passed(self, seconds: float) -> bool:
        """Whether all ranks have arrived, for which this waits at most `seconds`."""
        if not self._has_passed and self._is_released(seconds):
            self._advance()
        return self._has_passed

    def _is_released(self, seconds: float) -> bool:
        released = self._released[self._rank]
        if seconds <= 0.0:
            return released.try_take()
        return self._spin.poll(released.try_take, seconds) or released.take(seconds)

    def _advance(self) -> None:
        self._step += 1
        self._has_passed = True
