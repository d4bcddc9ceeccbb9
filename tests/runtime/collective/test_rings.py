"""Rings: ranks as threads of one process meet at endpoints and compute collectives."""

import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from runtime.collective import Rings, rpc_deadline
from runtime.collective.endpoint import parse_endpoint
from runtime.collective.groups.segment import Segment, SegmentLayout
from runtime.errors import CollectiveError, RankError, RendezvousError, ScheduleError
from tests.support.ports import free_ports

Body = Callable[[Rings, int], Any]
DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint8", "int16", "int32"]
DTYPES += ["int64", "bool"]


def world(size: int, body: Body, deadline: float = 20.0, *, shares: bool = False) -> list[Any]:
    """What `body` returns, or the CollectiveError it raises, on each rank of ring 0, which shares
    memory with the others or not.
    """
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(size)]
    shared = Segment.create(SegmentLayout(size, 1)) if shares else None

    def run(rank: int) -> Any:
        rings = Rings(deadline)
        try:
            rings.create_id("id", rank, endpoints)
            rings.init_ring(0, "id", size, rank, shared=shared)
            return body(rings, rank)
        except CollectiveError as error:
            return error
        finally:
            rings.close()

    return ranks(size, run)


def ranks(size: int, run: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


def reduced(op: str, arrays: list[Any]) -> Any:
    if arrays[0].dtype == bool:
        op = {"sum": "max", "prod": "min"}.get(op, op)
    function = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[op]
    return function.reduce(arrays).astype(arrays[0].dtype)


@pytest.mark.parametrize("shares", [False, True])
def test_reductions_of_every_type(*, shares: bool) -> None:
    def arrays(rank: int) -> dict[Any, Any]:
        return {dtype: np.array([rank, rank + 1, 1, 0], dtype) for dtype in DTYPES}

    def body(rings: Rings, rank: int) -> dict[tuple[str, str], Any]:
        results = {}
        for op in ("sum", "max", "min", "prod"):
            for dtype, array in arrays(rank).items():
                rings.all_reduce(0, f"{op} {np.dtype(dtype)}", op, array)
                results[op, np.dtype(dtype).name] = array
        return results

    each = world(3, body, shares=shares)
    for (op, name), array in each[0].items():
        dtype = next(dtype for dtype in DTYPES if np.dtype(dtype).name == name)
        expected = reduced(op, [arrays(rank)[dtype] for rank in range(3)])
        for found in each:
            np.testing.assert_array_equal(found[op, name], expected, err_msg=f"{op} {name}")
        assert array.dtype == expected.dtype


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, "int16", "bool"])
def test_collectives_that_move(dtype: Any, *, shares: bool) -> None:
    def values(rank: int) -> Any:
        return (np.arange(8).reshape(4, 2) * (rank + 1) % 3).astype(dtype)

    def body(rings: Rings, rank: int) -> list[Any]:
        sent, kept = values(rank), values(rank)
        rings.broadcast(0, "b", 1, sent)
        rings.reduce(0, "r", "sum", 1, kept)
        for count in (1, 3, 0):  # messages of less and more rows than before
            rings.all_gather_rows(0, "rows", np.arange(count * rank), values(rank)[: count * rank])
        rows = rings.all_gather_rows(0, "rows", np.arange(rank + 1), values(rank)[: rank + 1])
        rings.barrier(0, "end")
        return [
            sent, kept, rings.all_gather(0, "g", values(rank)),
            rings.reduce_scatter(0, "rs", "sum", values(rank)),
            rings.scatter(0, "s", 1, values(rank)), *rows,
        ]  # fmt: skip

    both = [values(0), values(1)]
    total = reduced("sum", both)
    for rank, found in enumerate(world(2, body, shares=shares)):
        expected = [
            both[1], total if rank else both[0], np.concatenate(both), np.split(total, 2)[rank],
            np.split(both[1], 2)[rank], np.array([0, 0, 1]),
            np.concatenate([both[0][:1], both[1][:2]]),
        ]  # fmt: skip
        for have, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("shares", [False, True])
def test_several_are_under_way_and_empty_or_scalar_arrays_work(*, shares: bool) -> None:
    def body(rings: Rings, rank: int) -> list[Any]:
        arrays = [np.full(5, rank + 1.0), np.zeros((0, 3)), np.array(2.0)]
        for index, array in enumerate(arrays):
            rings.start_all_reduce(0, f"a{index}", "sum", array)
        for index in (2, 0, 1):
            rings.wait(0, f"a{index}")
        return [*arrays, rings.all_gather(0, "g", arrays[1]), rings.rank(0), rings.size(0)]

    for rank, found in enumerate(world(2, body, shares=shares)):
        np.testing.assert_array_equal(found[0], np.full(5, 3.0))
        assert (found[1].shape, found[2], found[3].shape) == ((0, 3), 4.0, (0, 3))
        assert found[4:] == [rank, 2]


def test_hierarchical_sum_is_that_of_all_ranks() -> None:
    def body(rings: Rings, rank: int) -> Any:
        rings.set_hierarchy(0, 2)
        array = np.full(4, 10.0**rank)
        rings.all_reduce(0, "x", "sum", array)
        return array

    for found in world(5, body):
        np.testing.assert_array_equal(found, np.full(4, 11111.0))


def test_one_rank_needs_no_other() -> None:
    def body(rings: Rings, rank: int) -> list[Any]:
        array = np.arange(4.0)
        rings.all_reduce(0, "x", "sum", array)
        rings.broadcast(0, "x", 0, array)
        return [array, rings.all_gather(0, "g", array), rings.reduce_scatter(0, "s", "sum", array)]

    (result,) = world(1, body)
    for each in result:
        np.testing.assert_array_equal(each, np.arange(4.0))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (("a", "float32", 5), "all_reduce of 'a' (sum, float32[5])"),
        (("a", "float64", 4), "all_reduce of 'a' (sum, float64[4])"),
        (("b", "float32", 4), "all_reduce of 'b' (sum, float32[4])"),
    ],
)
def test_calls_that_differ_are_errors_of_all(other: tuple[str, str, int], named: str) -> None:
    def body(rings: Rings, rank: int) -> None:
        name, dtype, size = other if rank else ("a", "float32", 4)
        rings.all_reduce(0, name, "sum", np.ones(size, dtype))

    for error in world(2, body):
        assert isinstance(error, ScheduleError)
        assert "all_reduce of 'a' (sum, float32[4]) on rank 0" in str(error)
        assert f"{named} on rank 1" in str(error)


def test_schedules_are_compared_once_and_show_the_first_difference() -> None:
    def body(rings: Rings, rank: int) -> None:
        for _ in range(2):
            rings.check_schedule(0, "sum x float32[4]\nsum y float32[4]")
        rings.check_schedule(0, "sum x float32[4]\n" + ("sum z" if rank == 2 else "sum y"))

    for error in world(3, body):
        assert isinstance(error, ScheduleError)
        assert "line 2 of the schedule is" in str(error)
        assert "'sum z' on rank 2" in str(error)
        assert "'sum y' on rank" in str(error)


def test_a_program_that_another_rank_does_not_run_is_an_error() -> None:
    def body(rings: Rings, rank: int) -> None:
        rings.check_schedule(0, "sum x")
        if rank:
            rings.check_schedule(0, "sum y")
        rings.all_reduce(0, "x", "sum", np.ones(1))

    errors = world(2, body)
    assert all(isinstance(error, CollectiveError) for error in errors)
    assert any("'sum y' on rank 1 and 'sum x' on rank 0" in str(error) for error in errors)


def test_modules_are_compared_before_their_first_collective() -> None:
    line = "all_reduce of '{}' float32[4] (ring_id=0)".format

    def body(rings: Rings, rank: int) -> None:
        for lines in ([line("x")], [line("y"), "sum on another ring (ring_id=1)"]):
            rings.enter(tuple(lines))
            rings.barrier(0, "x")
        rings.enter((line("a"), line("b")) if rank else (line("b"), line("a")))
        rings.barrier(0, "x")

    for error in world(2, body):
        assert isinstance(error, ScheduleError)
        assert "line 1 of the schedule is" in str(error)
        assert f"{line('a')!r} on rank 1" in str(error)
        assert f"{line('b')!r} on rank 0" in str(error)


def test_known_calls_that_are_swapped_are_noticed() -> None:
    def body(rings: Rings, rank: int) -> None:
        array = np.ones(4)
        for step in range(10**6):
            is_other = step % 2 != (rank and step > 10)
            for name in "ab" if is_other else "ba":
                rings.all_reduce(0, name, "sum", array)

    for error in world(2, body):
        assert isinstance(error, ScheduleError | RankError)
        result = re.search(r"from (\d+) to (\d+), which is all_reduce of", str(error))
        assert result is not None and int(result[1]) <= 23 <= int(result[2])


def test_a_rank_that_raised_is_named_with_its_error() -> None:
    def body(rings: Rings, rank: int) -> None:
        rings.step = 7
        if rank:
            rings.fail(ZeroDivisionError("no such record"))
        else:
            rings.all_reduce(0, "x", "sum", np.ones(1))

    error = world(2, body)[0]
    assert isinstance(error, RankError)
    assert error.rank == 1
    assert "rank 1" in str(error)
    assert "ZeroDivisionError: no such record" in str(error)


@pytest.mark.parametrize("shares", [False, True])
def test_a_rank_that_stalls_is_named_at_the_deadline(*, shares: bool) -> None:
    done = threading.Event()

    def body(rings: Rings, rank: int) -> None:
        array = np.ones(1)
        rings.all_reduce(0, "x", "sum", array)
        if rank == 1:
            done.wait()
        rings.all_reduce(0, "x", "sum", array)

    def run(rings: Rings, rank: int) -> None:
        try:
            body(rings, rank)
        finally:
            done.set()

    error = world(2, run, deadline=2.0, shares=shares)[0]
    assert isinstance(error, RankError)
    assert (error.rank, error.last) == (1, "all_reduce of 'x' (sum, float64[1])")
    assert "no progress for 2 s" in str(error)


# What is wrong before the first collective


def joined(endpoints: list[list[str]], deadline: float = 2.0) -> list[str]:
    """The errors of ranks that were given these lists of endpoints."""

    def run(rank: int) -> str:
        rings = Rings(deadline)
        try:
            rings.create_id("id", rank, endpoints[rank])
        except RendezvousError as error:
            return str(error)
        finally:
            rings.close()
        return ""

    return ranks(len(endpoints), run)


def local(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def test_port_in_use_and_a_stranger_who_never_answers() -> None:
    endpoints = local(2)
    with socket.create_server(parse_endpoint(endpoints[0])):
        first, second = joined([endpoints, endpoints])
    assert f"cannot host the rendezvous at {endpoints[0]}: the port is in use" in first
    assert f"{endpoints[0]} is not the rendezvous of these ranks" in second


def test_endpoints_that_are_elsewhere_or_differ() -> None:
    a, b, c = local(3)
    first, second = joined([[a, b], [c, b]])
    assert "rank 1" in first
    assert "did not arrive" in first
    assert f"nobody hosts the rendezvous at {c}" in second
    a, b, c = local(3)
    for error in joined([[a, b], [a, c]]):
        assert "endpoint 1 is" in error
    a, b, c = local(3)
    for error in joined([[a, b], [a, b, c]]):
        assert "expects 3" in error


def test_endpoint_errors() -> None:
    assert "has no such address" in joined([["192.0.2.1:7000"]])[0]
    assert "is host:port" in joined([["7000"]])[0]
    assert "the rank must be from 0 to 0" in joined([[*local(1)], [*local(1)]])[1]


def test_a_rendezvous_can_be_made_again_at_the_same_endpoint() -> None:
    endpoints = local(2)
    for _ in range(2):
        assert joined([endpoints, endpoints], deadline=10.0) == ["", ""]


def test_rings_that_were_never_made() -> None:
    rings = Rings()
    with pytest.raises(CollectiveError, match="ring 3 was never initialised here"):
        rings.all_reduce(3, "x", "sum", np.ones(1))
    with pytest.raises(CollectiveError, match="no rendezvous 'id' was made"):
        rings.init_ring(0, "id", 2, 0)


def test_the_deadline_is_a_flag_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAGS_rpc_deadline", raising=False)
    assert rpc_deadline() == 180.0
    monkeypatch.setenv("FLAGS_rpc_deadline", "2500")
    assert Rings().deadline == 2.5
    monkeypatch.setenv("FLAGS_rpc_deadline", "soon")
    with pytest.raises(CollectiveError, match="expected a positive number of milliseconds"):
        rpc_deadline()
