"""Ranks as threads of this process: a `collective` for tests of what ranks compute.

No process is started, so that programs for many ranks are compared in milliseconds.
"""

from collections.abc import Callable, Sequence
from threading import Barrier, Lock, Thread
from typing import Any

import numpy as np

REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


class ThreadRing:
    """What all ranks share: a place for the values of each, and a barrier."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = Barrier(size, timeout=30)
        self.values: list[Any] = [None] * size
        self.calls: list[str] = []
        self.lock = Lock()

    def run(self, step: Callable[[int], Any]) -> list[Any]:
        """Run a function of the rank on every rank; the results, in the order of ranks."""
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def work(rank: int) -> None:
            try:
                results[rank] = step(rank)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)
                self.barrier.abort()

        threads = [Thread(target=work, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


class ThreadRank:
    """The `collective` of one rank of a `ThreadRing`."""

    def __init__(self, ring: ThreadRing, number: int) -> None:
        self._ring = ring
        self._number = number

    def _exchange(self, kind: str, name: str, value: Any) -> list[Any]:
        if self._number == 0:
            self._ring.calls.append(f"{kind} {name}")
        self._ring.values[self._number] = value
        self._ring.barrier.wait()
        result = list(self._ring.values)
        self._ring.barrier.wait()
        return result

    def all_reduce(self, ring: int, name: str, op: str, array: np.ndarray) -> None:
        array[...] = REDUCE[op](self._exchange("all_reduce", name, array.copy()), axis=0)

    start_all_reduce = all_reduce

    def wait(self, ring: int, name: str) -> None:
        """All is done when it begins."""

    def reduce(self, ring: int, name: str, op: str, root: int, array: np.ndarray) -> None:
        result = REDUCE[op](self._exchange("reduce", name, array.copy()), axis=0)
        if self._number == root:
            array[...] = result

    def broadcast(self, ring: int, name: str, root: int, array: np.ndarray) -> None:
        array[...] = self._exchange("broadcast", name, array.copy())[root]

    def all_gather(self, ring: int, name: str, array: np.ndarray) -> np.ndarray:
        return np.concatenate(self._exchange("all_gather", name, array.copy()))

    def all_gather_rows(self, ring: int, name: str, rows: Any, values: Any) -> tuple[Any, Any]:
        result = self._exchange("all_gather_rows", name, (rows.copy(), values.copy()))
        return tuple(np.concatenate(parts) for parts in zip(*result, strict=True))

    def enter(self, schedule: Sequence[str]) -> None:
        """All ranks run programs of one build."""

    def has_ring(self, ring: int) -> bool:
        return ring == 0

    def rank(self, ring: int) -> int:
        return self._number

    def size(self, ring: int) -> int:
        return self._ring.size
