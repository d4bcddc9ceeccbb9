"""Collectives of replicas, with one turn and several: values, agreement, errors, interrupts."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from runtime.errors import CollectiveError, ScheduleError
from runtime.replicas.collectives import Collectives, ReplicaRings
from runtime.replicas.turns import TaskFailed, Turns

Body = Callable[[ReplicaRings, int], Any]


@pytest.fixture(params=[(2, 1), (3, 1), (3, 2), (5, 5)], ids=lambda pair: "{}x{}".format(*pair))
def shape(request: pytest.FixtureRequest) -> tuple[int, int]:
    """The number of ranks, and how many run at a time."""
    return request.param


def ran(body: Body, size: int, width: int, times: int = 1) -> list[Any]:
    """Run a body on each rank; return the results by rank."""
    turns = Turns(size)
    collectives = Collectives(size, turns)
    rings = [ReplicaRings(collectives, rank) for rank in range(size)]
    tasks = [lambda rank=rank: body(rings[rank], rank) for rank in range(size)]
    results: list[Any] = []
    try:
        for _ in range(times):
            results = turns.run(tasks, width)
    finally:
        turns.close()
    return results


def test_values_of_every_collective(shape: tuple[int, int]) -> None:
    size, width = shape
    each = [np.arange(2.0 * size) * (rank + 1) for rank in range(size)]

    def body(rings: ReplicaRings, rank: int) -> list[Any]:
        assert (rings.rank(), rings.size(), rings.has_ring(3)) == (rank, size, True)
        summed, largest, rooted, sent = (each[rank].copy() for _ in range(4))
        rings.start_all_reduce(0, "a", "sum", summed)
        rings.start_all_reduce(1, "a", "max", largest)
        rings.wait(1, "a")
        rings.wait(0, "a")
        rings.reduce(0, "b", "prod", size - 1, rooted)
        rings.broadcast(0, "c", 1, sent)
        rings.barrier(0, "d")
        gathered = rings.all_gather(0, "e", each[rank])
        rows = rings.all_gather_rows(0, "f", np.arange(rank), np.full((rank, 2), rank))
        part = rings.reduce_scatter(0, "g", "sum", each[rank])
        scattered = rings.scatter(0, "h", 0, each[rank])
        return [summed, largest, rooted, sent, gathered, *rows, part, scattered]

    results = ran(body, size, width, times=3)
    total = np.sum(each, axis=0)
    for rank, result in enumerate(results):
        expected = [
            total,
            each[-1],
            np.prod(each, axis=0) if rank == size - 1 else each[rank],
            each[1],
            np.concatenate(each),
            np.concatenate([np.arange(count) for count in range(size)]),
            np.concatenate([np.full((count, 2), count) for count in range(size)]),
            total[2 * rank : 2 * rank + 2],
            each[0][2 * rank : 2 * rank + 2],
        ]
        for value, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)


def test_sums_are_in_rank_order_whoever_arrives_last() -> None:
    parts = [np.float32(1e8), np.float32(1), np.float32(-1e8), np.float32(1)]
    expected = ((parts[0] + parts[1]) + parts[2]) + parts[3]

    def body(late: int, rings: ReplicaRings, rank: int) -> Any:
        time.sleep(0.01 * (rank == late))
        array = np.full(3, parts[rank], np.float32)
        rings.all_reduce(0, "a", "sum", array)
        return array

    for late in range(4):
        for result in ran(lambda *given, late=late: body(late, *given), 4, 4):
            assert result.tolist() == [expected] * 3


def test_ranks_run_at_the_same_time_only_with_several_turns() -> None:
    running, most = 0, [0]
    lock = threading.Lock()

    def body(rings: ReplicaRings, rank: int) -> None:
        nonlocal running
        for _ in range(3):
            with lock:
                running += 1
                most[0] = max(most[0], running)
            time.sleep(0.01)
            with lock:
                running -= 1
            rings.barrier(0, "step")

    for width in (1, 2, 4):
        most[0] = 0
        ran(body, 4, width)
        assert most[0] == width


def test_different_collectives_are_an_error(shape: tuple[int, int]) -> None:
    size, width = shape

    def body(rings: ReplicaRings, rank: int) -> None:
        rings.all_reduce(0, "same", "sum", np.ones(2, "float32"))
        rings.all_reduce(0, "w", "sum", np.ones(2 + (rank == size - 1), "float32"))

    with pytest.raises((ScheduleError, TaskFailed)) as seen:
        ran(body, size, width)
    error = seen.value.error if isinstance(seen.value, TaskFailed) else seen.value
    assert "issue different collectives: number 2 of ring 0 is all_reduce of 'w'" in str(error)


def test_a_rank_that_leaves_others_waiting_is_an_error(shape: tuple[int, int]) -> None:
    size, width = shape

    def body(rings: ReplicaRings, rank: int) -> None:
        if rank:
            rings.barrier(0, "alone")

    with pytest.raises(TaskFailed) as seen:
        ran(body, size, width)
    assert "waits in a collective that the other ranks do not issue" in str(seen.value.error)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_of_one_rank_ends_all(shape: tuple[int, int], bad: int) -> None:
    size, width = shape
    bad = min(bad, size - 1)
    ended: list[int] = []

    def body(rings: ReplicaRings, rank: int) -> None:
        try:
            rings.barrier(0, "before")
            if rank == bad:
                raise OverflowError("too many rows")
            rings.barrier(0, "after")
        finally:
            ended.append(rank)

    with pytest.raises(TaskFailed if bad else OverflowError) as seen:
        ran(body, size, width)
    if isinstance(seen.value, TaskFailed):
        assert seen.value.rank == bad and str(seen.value.error) == "too many rows"
    assert sorted(ended) == list(range(size))


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("busy", ["first", "other"])
def test_an_interrupt_ends_a_step_within_a_second(width: int, busy: str) -> None:
    ended: list[int] = []

    def body(rings: ReplicaRings, rank: int) -> None:
        try:
            rings.barrier(0, "start")
            while (rank == 0) == (busy == "first"):  # for ever
                time.sleep(0.01)
            rings.barrier(0, "end")
        finally:
            ended.append(rank)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ran(body, 2, width)
    signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 1.5
    while len(ended) < 2:
        assert time.monotonic() - start < 10.0
        time.sleep(0.01)


def test_a_forked_child_has_threads_of_its_own() -> None:
    turns = Turns(3)
    assert turns.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
    with warnings.catch_warnings(action="ignore"):  # Python 3.12 warns of threads in forks
        child = os.fork()
    if not child:
        os._exit(0 if turns.run([lambda: 4, None, lambda: 6]) == [4, None, 6] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert turns.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
    turns.close()


def test_threads_end_with_their_owner() -> None:
    turns = Turns(4)
    turns.run([lambda: None] * 4)
    threads = list(turns._threads)
    assert [thread.is_alive() for thread in threads] == [True] * 3
    turns.close()
    for thread in threads:
        thread.join(5.0)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: r.all_reduce(0, "a", "mean", np.ones(2)), ValueError, "is one of sum"),
        (lambda r: r.broadcast(0, "a", 2, np.ones(2)), ValueError, "from 0 to 1, not 2"),
        (lambda r: r.scatter(0, "a", 0, np.ones(3)), ValueError, "divided among 2 ranks"),
        (lambda r: r.reduce_scatter(0, "a", "sum", np.ones(())), ValueError, "multiple"),
        (lambda r: r.wait(0, "a"), CollectiveError, "no all_reduce of 'a' was started"),
        (lambda r: r.create_id("NCCLID", 0, []), CollectiveError, "have met already"),
        (lambda r: r.init_ring(1, "NCCLID", 2, 0), CollectiveError, "have met already"),
    ],
)
def test_calls_that_are_invalid(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(ReplicaRings(Collectives(2, Turns(2)), 0))


def test_an_all_reduce_is_started_once() -> None:
    rings = ReplicaRings(Collectives(2, Turns(2)), 0)
    rings.start_all_reduce(0, "a", "sum", np.ones(1))
    with pytest.raises(CollectiveError, match="already in progress"):
        rings.start_all_reduce(0, "a", "sum", np.ones(1))
