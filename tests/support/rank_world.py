"""Ranks as threads of one process: a `collective` whose sums are NumPy's, over barriers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
DEADLINE = 20.0


def as_array(value: Any) -> np.ndarray:
    """The memory of a NumPy array or of a torch tensor on the host."""
    return value if isinstance(value, np.ndarray) else value.detach().numpy()


class World:
    """`size` ranks; what they exchange in each round is checked to be the same collective.

    One rank computes at a time, until it waits for others: Triton's interpreter has one state.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.turn = threading.Lock()
        self.rounds: dict[tuple[Any, ...], Exchange] = {}
        self.ranks = [Rank(self, rank) for rank in range(size)]

    def run(self, work: Callable[[Rank], Any]) -> list[Any]:
        """What each rank's work returns, all at once."""

        def in_turn(rank: Rank) -> Any:
            with self.turn:
                return work(rank)

        with ThreadPoolExecutor(self.size) as pool:
            results = [pool.submit(in_turn, rank) for rank in self.ranks]
            return [each.result(DEADLINE) for each in results]

    def meanwhile(self, wait: Callable[[], Any]) -> Any:
        """What a wait returns, during which another rank computes."""
        self.turn.release()
        try:
            return wait()
        finally:
            self.turn.acquire()

    def exchange(self, key: tuple[Any, ...]) -> Exchange:
        with self.lock:
            return self.rounds.setdefault(key, Exchange(self.size))


class Exchange:
    """One round in which every rank contributes a value and receives all of them."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.texts: list[str] = [""] * size
        self.barrier = threading.Barrier(size)

    def all(self, rank: int, text: str, value: Any) -> list[Any]:
        self.values[rank], self.texts[rank] = value, text
        self.barrier.wait(DEADLINE)
        assert len(set(self.texts)) == 1, f"ranks differ: {self.texts}"
        return self.values


class Rank:
    """The `collective` of one rank. What is started runs in a thread, one behind the other."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.counts: dict[Any, int] = {}
        self.jobs = ThreadPoolExecutor(1)
        self.started: dict[tuple[int, str], Any] = {}
        self.log: list[str] = []
        self.made: list[tuple[Any, ...]] = []

    def _all(self, ring: int, text: str, value: Any) -> list[Any]:
        """All ranks' values of the next round of a ring; the order on every rank is the same."""
        number = self._next(ring, text)
        return self.world.meanwhile(lambda: self._round(ring, number, text, value))

    def _next(self, ring: int, text: str) -> int:
        self.log.append(text)
        self.counts[ring] = self.counts.get(ring, 0) + 1
        return self.counts[ring]

    def _round(self, ring: int, number: int, text: str, value: Any) -> list[Any]:
        return self.world.exchange((ring, number)).all(self.number, text, value)

    def all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        mine = as_array(array)
        parts = self._all(ring, f"all_reduce {op} {name} {mine.shape}", mine.copy())
        np.copyto(mine, REDUCE[op](parts, axis=0))

    def start_all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        mine = as_array(array)
        text = f"start {op} {name} {mine.shape}"
        number = self._next(ring, text)

        def work() -> None:
            time.sleep(0.002)  # whoever reads too early shall see what is not summed yet
            parts = self._round(ring, number, text, mine.copy())
            with np.errstate(all="ignore"):  # between the parts of a bucket there may be anything
                np.copyto(mine, REDUCE[op](parts, axis=0))

        self.started[ring, name] = self.jobs.submit(work)

    def wait(self, ring: int, name: str) -> None:
        self.log.append(f"wait {name}")
        started = self.started.pop((ring, name))
        self.world.meanwhile(lambda: started.result(DEADLINE))

    def reduce(self, ring: int, name: str, op: str, root: int, array: Any) -> None:
        mine = as_array(array)
        parts = self._all(ring, f"reduce {op} {root} {name}", mine.copy())
        if self.number == root:
            np.copyto(mine, REDUCE[op](parts, axis=0))

    def broadcast(self, ring: int, name: str, root: int, array: Any) -> None:
        mine = as_array(array)
        np.copyto(mine, self._all(ring, f"broadcast {root} {name}", mine.copy())[root])

    def all_gather(self, ring: int, name: str, array: Any) -> Any:
        return self._like(array, np.concatenate(self._all(ring, f"gather {name}", copied(array))))

    def all_gather_rows(self, ring: int, name: str, rows: Any, values: Any) -> tuple[Any, Any]:
        parts = self._all(ring, f"gather_rows {name}", (copied(rows), copied(values)))
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def reduce_scatter(self, ring: int, name: str, op: str, array: Any) -> Any:
        parts = self._all(ring, f"reduce_scatter {op} {name}", copied(array))
        return self._like(array, np.split(REDUCE[op](parts, axis=0), self.world.size)[self.number])

    def scatter(self, ring: int, name: str, root: int, array: Any) -> Any:
        whole = self._all(ring, f"scatter {root} {name}", copied(array))[root]
        return self._like(array, np.split(whole, self.world.size)[self.number])

    def barrier(self, ring: int, name: str) -> None:
        self._all(ring, f"barrier {name}", None)

    def enter(self, schedule: Sequence[str]) -> None:
        """Every exchange is compared here."""

    def rank(self, ring: int) -> int:
        return self.number

    def size(self, ring: int) -> int:
        return self.world.size

    def has_ring(self, ring: int) -> bool:
        return True

    def create_id(self, name: str, rank: int, endpoints: Sequence[str]) -> None:
        self.made.append(("id", name, rank, list(endpoints)))

    def init_ring(self, ring: int, id_name: str, size: int, rank: int) -> None:
        self.made.append(("ring", ring, id_name, size, rank))

    def _like(self, given: Any, found: np.ndarray) -> Any:
        return found if isinstance(given, np.ndarray) else given.new_tensor(found)


def copied(value: Any) -> np.ndarray:
    """A copy of the contribution of a rank."""
    return as_array(value).copy()
