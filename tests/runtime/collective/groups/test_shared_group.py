"""SharedGroup: ranks as threads of one process reduce and copy through a segment."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import numpy as np
import pytest

from runtime.collective.groups import segment as segments
from runtime.collective.groups.segment import LANES, Segment, SegmentLayout
from runtime.collective.groups.shared_group import SharedGroup, SharedWork
from runtime.errors import CollectiveError

LIMIT = 20.0


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of one page, so that short arrays have many chunks."""
    monkeypatch.setattr(segments, "SET_BYTES", 0)
    monkeypatch.setattr(segments, "MIN_CHUNK", segments.PAGE)
    monkeypatch.setattr("runtime.collective.groups.shared_group.SHORT_BYTES", 1 << 8)


@pytest.fixture
def shared() -> Generator[Callable[[int], Segment]]:
    """A function that creates a segment for some ranks and one ring."""
    created: list[Segment] = []

    def create(ranks: int) -> Segment:
        created.append(Segment.create(SegmentLayout(ranks, 1)))
        return created[-1]

    yield create
    for segment in created:
        segment.close()


def run(segment: Segment, body: Callable[[SharedGroup, int], Any]) -> list[Any]:
    """What `body` returns on each rank."""
    size = segment.layout.ranks
    with ThreadPoolExecutor(size) as threads:
        groups = [SharedGroup(segment, 0, rank, 0.0) for rank in range(size)]
        return list(threads.map(body, groups, range(size)))


def finish(work: SharedWork) -> None:
    end = monotonic() + LIMIT
    while not work.done():
        assert monotonic() < end, "the other ranks do not take part"


def values(rank: int, count: int) -> Any:
    return np.random.default_rng(rank).standard_normal(count).astype("float32")


@pytest.mark.parametrize("count", [0, 1, 21, 22, 1024, 1025, 5000])
def test_reductions_are_in_rank_order_whatever_the_length(
    shared: Callable[[int], Segment], count: int
) -> None:
    def body(group: SharedGroup, rank: int) -> list[Any]:
        summed, reduced, part = values(rank, count), values(rank, count), np.empty(count, "float32")
        for _ in range(2):  # in all sets of buffers, in any order
            summed = values(rank, count)
            finish(group.all_reduce(summed, "sum"))
        finish(group.reduce(reduced, "sum", 1))
        finish(group.reduce_scatter(part, values(rank, 3 * count), "max"))
        return [summed, reduced, part]

    mine = [values(rank, count) for rank in range(3)]
    total = mine[0] + mine[1] + mine[2]
    parts = np.maximum.reduce([values(rank, 3 * count) for rank in range(3)]).reshape(3, count)
    for rank, (summed, reduced, part) in enumerate(run(shared(3), body)):
        np.testing.assert_array_equal(summed, total)
        np.testing.assert_array_equal(reduced, total if rank == 1 else mine[rank])
        np.testing.assert_array_equal(part, parts[rank])


@pytest.mark.parametrize("count", [0, 1024, 12289, 40000])
def test_arrays_longer_than_buffers_are_moved(shared: Callable[[int], Segment], count: int) -> None:
    def body(group: SharedGroup, rank: int) -> list[Any]:
        sent, gathered, part = values(rank, count), np.empty((3, count)), np.empty(count)
        finish(group.broadcast(sent, 2))
        finish(group.all_gather(gathered, np.full(count, rank + 0.5)))
        finish(group.scatter(part, np.arange(3.0 * count).reshape(3, count) + rank, 1))
        return [sent, gathered, part]

    for rank, (sent, gathered, part) in enumerate(run(shared(3), body)):
        np.testing.assert_array_equal(sent, values(2, count))
        np.testing.assert_array_equal(gathered, np.repeat([[0.5], [1.5], [2.5]], count, axis=1))
        np.testing.assert_array_equal(part, np.arange(count) + rank * count + 1.0)


def test_ranks_await_more_than_there_are_lanes_in_any_order(
    shared: Callable[[int], Segment],
) -> None:
    def body(group: SharedGroup, rank: int) -> list[Any]:
        arrays = [values(rank + n, 3000) for n in range(3 * LANES)]
        works = [group.all_reduce(array, "sum") for array in arrays]
        if rank:  # others wait for these before they take part in what comes next
            works.reverse()
        for work in works[: len(works) // 2]:
            finish(work)
        finish(group.broadcast(np.zeros(1), 0))
        for work in works:
            finish(work)
        return arrays

    each = run(shared(3), body)
    for n in range(3 * LANES):
        total = values(n, 3000) + values(n + 1, 3000) + values(n + 2, 3000)
        for arrays in each:
            np.testing.assert_array_equal(arrays[n], total)


def test_a_rank_that_waits_takes_part_in_what_others_wait_for(
    shared: Callable[[int], Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.collective.groups.shared_group.SLICE", LIMIT)

    def body(group: SharedGroup, rank: int) -> None:
        first = group.all_reduce(np.zeros(3000), "sum")
        if rank:
            assert group.complete(first, LIMIT / 2)  # while the other rank waits for the second
        finish(group.all_reduce(np.zeros(3000), "sum"))

    run(shared(2), body)


def test_a_root_does_not_wait_for_those_who_read(shared: Callable[[int], Segment]) -> None:
    segment = shared(2)
    root, other = SharedGroup(segment, 0, 0, 0.0), SharedGroup(segment, 0, 1, 0.0)
    read = np.zeros(2)
    assert root.broadcast(np.arange(2.0), 0).is_complete
    finish(other.broadcast(read, 0))
    np.testing.assert_array_equal(read, np.arange(2.0))


def test_a_wait_for_a_rank_that_does_not_come_ends_with_its_slice(
    shared: Callable[[int], Segment],
) -> None:
    work = SharedGroup(shared(2), 0, 0, 0.0).all_reduce(np.zeros(2), "sum")
    start = monotonic()
    assert not work.done()
    assert 0.05 < monotonic() - start < LIMIT


def test_arrays_of_different_sizes_are_refused(shared: Callable[[int], Segment]) -> None:
    def body(group: SharedGroup, rank: int) -> str:
        with pytest.raises(CollectiveError) as raised:
            finish(group.all_reduce(np.zeros(4 + rank), "sum"))
        return str(raised.value)

    for rank, error in enumerate(run(shared(2), body)):
        assert f"rank {1 - rank} exchanges {40 - 8 * rank} bytes" in error
        assert f"rank {rank} {32 + 8 * rank}" in error


def test_a_file_of_another_size_is_refused(shared: Callable[[int], Segment]) -> None:
    descriptor = shared(2).descriptor
    with pytest.raises(CollectiveError, match="3 ranks with 1 rings has"):
        Segment(descriptor, SegmentLayout(3, 1))
