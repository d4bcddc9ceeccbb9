"""Staging memory of uploads: a ring of pinned host memory, with as many bytes on the device."""

from __future__ import annotations

from collections import deque
from typing import Any

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.gpu.cuda import current_stream, staging_memory

ALIGN = 256
"""Alignment of a slot in bytes."""

SMALLEST = 1 << 20
"""Bytes of the smallest ring."""


@dataclass(frozen=True)
class StagingSlot:
    """Bytes of the ring: `host` is pinned memory, `there` are the same bytes of the device's.

    `array` is `host` in NumPy.
    """

    start: int
    stop: int
    host: Any
    there: Any
    array: Array


class StagingRing:
    """Slots are taken one after the other and reused in the same order, each after its event.

    Between `take` and `release` a slot is the caller's. `release` names the event after which
    neither memory of the slot is used; `take` waits for the events of the oldest slots until there
    is room. So the host runs ahead of the device by the bytes of the ring, and no further.
    """

    def __init__(self, device: str, stream: Any) -> None:
        self._device = device
        self._stream = stream
        self._host: Any = None
        self._there: Any = None
        self._array: Any = None
        self._next = 0
        self._used: deque[tuple[int, Any]] = deque()

    @property
    def nbytes(self) -> int:
        """Its bytes in each of the two memories."""
        return 0 if self._host is None else int(self._host.numel())

    def reserve(self, nbytes: int) -> None:
        """Make it at least this large; waits for all copies if it grows."""
        if nbytes <= self.nbytes:
            return
        while self._used:
            self._wait_for_oldest()
        self._host = self._there = self._array = None  # freed before the new ones are allocated
        self._host, self._there = staging_memory(max(nbytes, SMALLEST), self._device)
        self._array = self._host.numpy()
        self._there.record_stream(self._stream)
        self._stream.wait_stream(current_stream(self._device))  # may use the bytes until now

    def take(self, nbytes: int) -> StagingSlot:
        """Return a slot; waits for the events of those that were taken longest ago."""
        size = -(-nbytes // ALIGN) * ALIGN
        self.reserve(2 * size if size > self.nbytes else 0)
        start = self._free(size)
        while start is None:
            self._wait_for_oldest()
            start = self._free(size)
        self._next = start + size
        stop = start + nbytes
        parts = (memory[start:stop] for memory in (self._host, self._there, self._array))
        return StagingSlot(start, stop, *parts)

    def release(self, slot: StagingSlot, event: Any) -> None:
        """Let a slot be reused after an event."""
        self._used.append((slot.start, event))

    def _free(self, size: int) -> int | None:
        """The start of free bytes: they lie between the latest slot and the oldest one."""
        if not self._used:
            return 0
        oldest = self._used[0][0]
        if self._next <= oldest:
            return self._next if self._next + size <= oldest else None
        if self._next + size <= self.nbytes:
            return self._next
        return 0 if size <= oldest else None

    def _wait_for_oldest(self) -> None:
        self._used.popleft()[1].synchronize()
