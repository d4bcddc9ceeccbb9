"""Copies between arrays in host memory: large ones in chunks, by a few threads.

One thread copies as fast as its core reads and writes, which is a fraction of what the bus moves.
torch's own threads are not used: when they have slept, the first copy waits milliseconds for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.processors import available_processors

OVERLAPPED = 4 << 20
"""Bytes from which a copy is divided: a chunk takes longer than to wake a thread."""

CHUNKS = 8
"""Chunks of a copy; the first is on its way over the bus while the others are copied."""

THREADS = 4
"""Threads that copy chunks; more do not copy faster."""


def chunks(nbytes: int) -> list[slice]:
    """Ranges of bytes that a copy is divided into: one for a small copy.

    >>> chunks(100)
    [slice(0, 100, None)]
    """
    count = CHUNKS if nbytes >= OVERLAPPED else 1
    cuts = [nbytes * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def copied(out: Array, source: Array, before: Sequence[Callable[[], Any]] = ()) -> Iterator[slice]:
    """Copy bytes, uint8[n], and yield each range as it has been copied, in order.

    `before` has a function for each range, which waits until its bytes may be read. All threads
    have ended when the iterator ends, also by an error.
    """
    ranges = chunks(out.nbytes)
    waits = before or [_nothing] * len(ranges)

    def copy(part: slice, wait_for_bytes: Callable[[], Any]) -> None:
        wait_for_bytes()
        np.copyto(out[part], source[part])

    if len(ranges) == 1:
        copy(ranges[0], waits[0])
        yield ranges[0]
        return
    submitted: list[Future[None]] = []
    try:
        submitted += [_threads().submit(copy, *pair) for pair in zip(ranges, waits, strict=True)]
        for part, future in zip(ranges, submitted, strict=True):
            future.result()
            yield part
    finally:
        wait(submitted)


def _nothing() -> None:
    """Wait for nothing."""


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads of this process that copy chunks, started by the first large copy."""
    return ThreadPoolExecutor(min(THREADS, available_processors()), "fluid-copy")
