"""The exchange of samples between the workers of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compiler.ir.types import Array

__all__ = ["ExchangingWorkers", "gathered_lines", "sum_over_workers"]


class ExchangingWorkers(Protocol):
    """What is used of a fleet, whose workers exchange samples."""

    def worker_num(self) -> int:
        """Return the number of workers."""
        ...

    def worker_index(self) -> int:
        """Return the index of this worker."""
        ...

    def all_reduce_worker(self, input: Array, output: Array) -> None:
        """Sum an array over all workers into `output`."""
        ...


def sum_over_workers(fleet: ExchangingWorkers, numbers: Sequence[int] | Array) -> Array:
    """Element-wise sum of integers over all workers."""
    total = np.zeros(len(numbers), np.int64)
    fleet.all_reduce_worker(np.asarray(numbers, np.int64), total)
    return total


def gathered_lines(fleet: ExchangingWorkers, text: bytes) -> list[bytes]:
    """Gather the lines of all workers, in rank order."""
    words = _as_words(text)
    sizes = np.zeros(fleet.worker_num() + 1, np.int64)
    sizes[fleet.worker_index() + 1] = len(words)
    ends = np.cumsum(sum_over_workers(fleet, sizes))
    everyone = np.zeros(ends[-1], np.int64)
    start = ends[fleet.worker_index()]
    everyone[start : start + len(words)] = words
    return [line for line in _as_bytes(sum_over_workers(fleet, everyone)).split(b"\n") if line]


def _as_words(text: bytes) -> Array:
    """Pack six bytes into each integer; a fleet sums numbers exactly up to 2^53."""
    padded = np.frombuffer(text + b"\n" * (-len(text) % 6), np.uint8).reshape(-1, 6)
    return np.pad(padded, ((0, 0), (0, 2))).view("<i8")[:, 0]


def _as_bytes(words: Array) -> bytes:
    """Undo `_as_words`, but for the padding."""
    return words.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :6].tobytes()
