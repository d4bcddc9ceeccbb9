"""Prefetching: order, bounds, errors with their traceback, and no thread left behind."""

import gc
import threading
import time
from collections.abc import Iterator
from traceback import extract_tb

import pytest

from runtime.prefetching_reader import Prefetcher, Queue, prefetched


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = {*threading.enumerate()}
    yield
    deadline = time.monotonic() + 5
    while {*threading.enumerate()} - before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert {*threading.enumerate()} <= before


def test_items_come_in_order() -> None:
    assert list(prefetched(lambda: range(100), 3)) == list(range(100))


def test_prefetching_is_bounded() -> None:
    created: list[int] = []

    def source() -> Iterator[int]:
        for number in range(10):
            created.append(number)
            yield number

    with Prefetcher(source, 2) as items:
        assert next(items) == 0
        deadline = time.monotonic() + 5
        while items.queue.size() < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        assert created == [0, 1, 2, 3]


def test_an_error_comes_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    items = prefetched(source, 4)
    assert next(items) == 1
    with pytest.raises(KeyError, match="broken") as caught:
        next(items)
    assert "source" in [frame.name for frame in extract_tb(caught.value.__traceback__)]
    assert list(items) == []


def test_an_error_of_the_call_itself_is_raised() -> None:
    def source() -> Iterator[int]:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        list(prefetched(source, 1))


def endless(closed: list[bool]) -> Iterator[int]:
    try:
        while True:
            yield 1
    finally:
        closed.append(True)


def test_leaving_a_loop_ends_the_thread_and_the_generator() -> None:
    closed: list[bool] = []
    for _ in prefetched(lambda: endless(closed), 2):
        break
    gc.collect()
    assert closed == [True]


def test_an_interrupt_while_waiting_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(queue: Queue[int]) -> int:
        raise KeyboardInterrupt

    items = Prefetcher(lambda: endless([]), 2)
    monkeypatch.setattr(Queue, "get", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)


def test_dropping_it_ends_the_thread() -> None:
    items = Prefetcher(lambda: endless([]), 2)
    next(items)
    del items
    gc.collect()


def test_a_closed_queue_yields_and_accepts_nothing() -> None:
    queue: Queue[int] = Queue(2)
    assert queue.put(1)
    queue.close()
    assert (queue.put(2), queue.size()) == (False, 0)
    with pytest.raises(StopIteration):
        queue.get()


def test_closing_wakes_the_thread_that_waits_for_room() -> None:
    queue: Queue[int] = Queue(1)
    queue.put(1)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(queue.put(2)))
    thread.start()
    queue.close()
    thread.join()
    assert results == [False]
