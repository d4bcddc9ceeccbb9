"""`core.Gloo`: one process alone, two that meet at an endpoint, and calls in the wrong order."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fluid import core
from tests.support.ports import free_endpoints


def test_a_single_process_needs_nobody():
    gloo = core.Gloo()
    gloo.set_hdfs_store("unused", "", "")
    gloo.init()
    gloo.barrier()
    assert (gloo.rank(), gloo.size()) == (0, 1)
    assert gloo.all_reduce([1, 2], "max") == [1, 2]
    assert gloo.all_gather(0.5) == [0.5]


def test_two_processes_meet_at_an_endpoint():
    ip, port = free_endpoints(1)[0].split(":")

    def collectives(rank: int) -> tuple[list[float], list[float]]:
        gloo = core.Gloo()
        gloo.set_rank(rank)
        gloo.set_size(2)
        gloo.set_timeout_seconds(30, 30)
        gloo.set_http_store(ip, int(port), "trainer")
        gloo.init()
        gloo.barrier()
        return gloo.all_reduce([1, 10 * rank]), gloo.all_gather(rank + 0.5)

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(collectives, range(2)))
    assert results == [([2, 10], [0.5, 1.5])] * 2


def test_calls_that_cannot_be_answered_say_why():
    gloo = core.Gloo()
    with pytest.raises(RuntimeError, match="call init"):
        gloo.barrier()
    gloo.init()
    with pytest.raises(ValueError, match="'mean', expected one of sum, min, max"):
        gloo.all_reduce([1], "mean")
    gloo.set_size(2)
    with pytest.raises(ValueError, match="2 processes have no place to meet"):
        gloo.init()
