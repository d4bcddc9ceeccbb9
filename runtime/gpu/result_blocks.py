"""Pinned memory that results lie in, reused once their arrays have been dropped.

The device copies a result to a block, and the caller gets an array over it: no copy by the host,
and no fresh pages. The block returns to its pool when the array and all views of it are gone.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import field
from functools import cache
from threading import Lock
from typing import Any
from weakref import finalize

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.errors import TooLarge
from runtime.forks import renew_in_children
from runtime.gpu.capture_lock import CAPTURES
from runtime.gpu.cuda import new_event, pinned_memory

LIMIT = 1 << 30
"""Bytes of the blocks of a device at most."""

SPARE = 2
"""Blocks of a size that are allocated before one has returned: a script that assigns each result to
the same name drops the last one after the next has arrived."""


@dataclass(frozen=True)
class ResultBlock:
    """Bytes of pinned memory; `done` is recorded after the copy to them."""

    memory: Any
    done: Any

    @property
    def nbytes(self) -> int:
        """Its size, a power of two."""
        return int(self.memory.numel())


@dataclass
class _SizedBlocks:
    """The blocks of one size: those that are free, the count of all, and how many may be added."""

    free: list[ResultBlock] = field(default_factory=list[ResultBlock])
    count: int = 0
    more: int = SPARE


class ResultBlocks:
    """The blocks of a device: taken by any thread, returned by the garbage collector.

    Of each size there may be two, and more if some have returned. So a script that keeps its
    results soon gets None, and copies to memory of its own: to allocate a block would take longer.
    """

    def __init__(self, device: str, limit: int = LIMIT) -> None:
        self._device = device
        self._limit = limit
        self._sizes: dict[int, _SizedBlocks] = {}
        self._returned: deque[ResultBlock] = deque()
        self.nbytes = 0
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one."""
        self._lock = Lock()

    def take(self, nbytes: int) -> tuple[Array, Any] | None:
        """Return uint8[nbytes] in pinned memory, and an event to record after the copy to it.

        The memory is reused when no array is over it any more and the event has been reached. None
        if there is no block.
        """
        size = 1 << max(nbytes - 1, 0).bit_length()
        with self._lock:
            self._collect()
            sized = self._sizes.setdefault(size, _SizedBlocks())
            block = sized.free.pop() if sized.free else self._new(size, sized)
        if block is None:
            return None
        block.done.synchronize()  # a step that raised may have dropped its result before it arrived
        array: Array = block.memory.numpy()  # every view has it as its base
        finalize(array, self._returned.append, block).atexit = False
        return array[:nbytes], block.done

    def _collect(self) -> None:
        """Free the blocks that have returned; the collector only appends them, without a lock."""
        while self._returned:
            block = self._returned.popleft()
            sized = self._sizes[block.nbytes]
            sized.free.append(block)
            sized.more = min(sized.more + 1, max(sized.count, SPARE))

    def _new(self, size: int, sized: _SizedBlocks) -> ResultBlock | None:
        """Allocate a block; None if there are as many as may be, or no memory."""
        if not sized.more or not self._has_room(size):
            return None
        with suppress(TooLarge):
            block = ResultBlock(pinned_memory(size, self._device), new_event())
            sized.count, sized.more = sized.count + 1, sized.more - 1
            self.nbytes += size
            return block
        return None

    def _has_room(self, size: int) -> bool:
        """Whether a block fits into the limit, after free ones of other sizes have been dropped."""
        for sized in self._sizes.values():
            while sized.free and self.nbytes + size > self._limit:
                block = sized.free.pop()
                sized.count -= 1
                self.nbytes -= block.nbytes
                block.done.synchronize()
                CAPTURES.release([block])
        return self.nbytes + size <= self._limit


@cache
def result_blocks(device: str) -> ResultBlocks:
    """The blocks of a device, which all steps of this process share."""
    return ResultBlocks(device)
