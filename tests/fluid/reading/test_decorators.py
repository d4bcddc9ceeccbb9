"""Readers made of readers: what they give, what they refuse, and what reaches the user."""

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fluid import io


def numbers(count: int) -> Any:
    return lambda: iter(range(count))


def failing() -> Iterator[int]:
    yield 1
    raise KeyError("broken")


def test_every_call_reads_anew() -> None:
    reads: list[int] = []

    def reader() -> Iterator[int]:
        reads.append(1)
        yield from range(3)

    for made in [
        io.map_readers(int, reader),
        io.chain(reader),
        io.compose(reader),
        io.firstn(reader, 2),
        io.batch(reader, 2),
        io.buffered(reader, 2),
        io.shuffle(reader, 2),
        io.xmap_readers(int, reader, 2, 2),
    ]:
        reads.clear()
        assert list(made()) and list(made())
        assert len(reads) == 2


def test_cache_reads_once() -> None:
    reads: list[int] = []
    cached = io.cache(lambda: reads.append(1) or iter(range(2)))
    assert (list(cached()), list(cached()), reads) == ([0, 1], [0, 1], [1])


def test_shuffle_returns_every_sample_within_its_buffer() -> None:
    random.seed(3)
    first = list(io.shuffle(numbers(10), 4)())
    random.seed(3)
    assert list(io.shuffle(numbers(10), 4)()) == first
    assert sorted(first) == list(range(10))
    assert [sorted(first[i : i + 4]) for i in (0, 4, 8)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(io.shuffle(numbers(3), 0)()) == [0, 1, 2]


def test_compose_wants_as_many_of_each() -> None:
    assert list(io.compose(numbers(2), lambda: [(5, 6), (7, 8)])()) == [(0, 5, 6), (1, 7, 8)]
    uneven = numbers(2), numbers(1)
    with pytest.raises(io.ComposeNotAligned, match=r"of 2 readers only \[0\] have samples left"):
        list(io.compose(*uneven)())
    assert list(io.compose(*uneven, check_alignment=False)()) == [(0, 0)]
    assert issubclass(io.ComposeNotAligned, ValueError)
    with pytest.raises(TypeError, match="not aligned"):
        io.compose(numbers(1), aligned=False)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_samples(size: int) -> None:
    with pytest.raises(ValueError, match=f"positive integer, but received {size}"):
        io.batch(numbers(3), size)


def test_firstn_of_fewer() -> None:
    assert list(io.firstn(numbers(2), 5)()) == [0, 1]


@pytest.mark.parametrize("order", [True, False])
def test_xmap_returns_every_sample(order: bool) -> None:
    def mapper(sample: int) -> int:
        time.sleep(0.002 * (sample % 3))
        return sample * 10

    result = list(io.xmap_readers(mapper, numbers(20), 4, 6, order)())
    assert (result if order else sorted(result)) == [10 * sample for sample in range(20)]


def test_errors_reach_the_one_who_reads() -> None:
    with pytest.raises(KeyError, match="broken"):
        list(io.buffered(failing, 2)())
    with pytest.raises(KeyError, match="broken"):
        list(io.xmap_readers(int, failing, 2, 4)())
    with pytest.raises(ZeroDivisionError):
        list(io.xmap_readers(lambda sample: 1 // sample, numbers(3), 2, 4, order=True)())


def test_leaving_early_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    for made in [io.buffered(numbers(100), 3), io.xmap_readers(int, numbers(100), 3, 4)]:
        for _ in made():
            break
    assert {*threading.enumerate()} <= before


# ---- several processes


@pytest.fixture(params=["processes", "threads"])
def _reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers run in processes, or in threads where the system has no forks."""
    if request.param == "threads":
        monkeypatch.delattr(os, "fork")


@pytest.mark.usefixtures("_reads")
def test_processes_take_turns() -> None:
    readers = [lambda: [(1, [2.0]), "a"], lambda: ["b"], list]
    assert list(io.multiprocess_reader(readers)()) == [(1, [2.0]), "b", "a"]
    assert list(io.multiprocess_reader(readers, use_pipe=False, queue_size=1)()) == [
        (1, [2.0]),
        "b",
        "a",
    ]


@pytest.mark.usefixtures("_reads")
def test_a_failing_process_reports_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUID_TRACEBACK", raising=False)
    with pytest.raises(ValueError, match="a process that reads failed: KeyError: 'broken'") as seen:
        list(io.multiprocess_reader([failing])())
    _, line = str(seen.value).splitlines()
    assert line.startswith("  line: ") and line.endswith(" in failing")
    with pytest.raises(ValueError, match="a sample is None"):
        list(io.multiprocess_reader([lambda: [None]])())


@pytest.mark.usefixtures("_reads")
def test_leaving_early_leaves_no_process() -> None:
    before = {*threading.enumerate()}  # those of other tests may end meanwhile
    for _ in io.multiprocess_reader([numbers(100_000), numbers(100_000)])():
        break
    assert {*threading.enumerate()} <= before
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("readers", [[], numbers(1), None])
def test_processes_need_readers(readers: Any) -> None:
    with pytest.raises(AssertionError, match="takes a list of readers"):
        io.multiprocess_reader(readers)
