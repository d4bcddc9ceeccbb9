"""Replicas: modules run as ranks of this process, each with its own state."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.module import Module
from runtime.errors import CollectiveError, FeedError, WorkerError
from runtime.replicas import Replicas
from runtime.replicas.replicas import WIDE_FROM
from tests.support.modules import SUM_OF_RANKS

FAILS = """
NAME = "fails"
TARGET = "numpy"
DIMS = ()
FEEDS = ()
PARAMS = ()
FETCHES = ()
BUFFERS = ()

def bind(take, params):
    def step():
        raise OverflowError("too many rows")
    return step
"""
CPU = runtime.CPUPlace()


def loaded(size: int) -> tuple[Replicas, Any]:
    """Replicas that run SUM_OF_RANKS, and the step of the first rank."""
    replicas = Replicas(size)
    replicas.load("sum", [Module.parse(SUM_OF_RANKS)] * (size - 1), scope="model")
    replicas.set_state("model", {"w": np.array([1, 10], "float32")})
    params, names = {"w": np.array([1, 10], "float32")}, {"collective": replicas.rings}
    return replicas, runtime.load(Module.parse(SUM_OF_RANKS), CPU, params, names=names)


@pytest.mark.parametrize("size", [2, 3])
def test_steps_of_a_module_with_state(size: int) -> None:
    replicas, own = loaded(size)
    for step in range(3):
        feeds = [{"x": np.full((3 + rank, 2), rank + 1, "float32")} for rank in range(size)]
        (y, total), others = replicas.run("sum", feeds[1:], lambda feed=feeds[0]: own(feed))
        summed = sum(feed["x"].sum(0) for feed in feeds)
        np.testing.assert_array_equal(total, summed * (np.array([1, 10]) + step))
        np.testing.assert_array_equal(y, feeds[0]["x"] + 1)
        for feed, (theirs, their_total) in zip(feeds[1:], others, strict=True):
            np.testing.assert_array_equal(theirs, feed["x"] + 1)
            np.testing.assert_array_equal(their_total, total)
    assert replicas.get_state(1, "model", ["w"])["w"].tolist() == [4, 13]
    replicas.set_state("model", {"w": np.ones(2, "float32")}, [1])
    assert replicas.get_state(1, "model", ["w"])["w"].tolist() == [1, 1]
    replicas.get_state(1, "model", ["w"])["w"][...] = 7
    assert replicas.get_state(1, "model", ["w"])["w"].tolist() == [1, 1]
    replicas.close()


def test_state_is_copied_and_dropped() -> None:
    replicas = Replicas(2)
    given = np.zeros(3, "float32")
    replicas.set_state("model", {"w": given})
    given[...] = 1
    assert replicas.get_state(1, "model", ["w"])["w"].tolist() == [0, 0, 0]
    replicas.forgotten.append("model")
    replicas.load("fails", [Module.parse(FAILS)])
    replicas.run("fails", [None], lambda: 1)
    with pytest.raises(KeyError):
        replicas.get_state(1, "model", ["w"])
    replicas.drop(["fails", "unknown"])
    with pytest.raises(KeyError):
        replicas.run("fails", [None], lambda: 1)
    replicas.close()


def test_feeds_that_are_missing_leave_the_replicas_open() -> None:
    replicas, own = loaded(2)
    with pytest.raises(FeedError, match="missing feed of rank 1: 'x'"):
        replicas.run("sum", [{}], lambda: 1)
    feed = {"x": np.ones((1, 2), "float32")}
    assert len(replicas.run("sum", [feed], lambda: own(feed))[1]) == 1
    replicas.close()


def test_an_error_names_the_rank_and_ends_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUID_TRACEBACK", raising=False)
    replicas = Replicas(2)
    replicas.load("fails", [Module.parse(FAILS)])
    with pytest.raises(WorkerError, match=r"rank 1 .* raised OverflowError: too many rows") as seen:
        replicas.run("fails", [{}], lambda: 1)
    assert (seen.value.rank, seen.value.kind) == (1, "OverflowError")
    assert len(str(seen.value).splitlines()) <= 3
    assert not replicas.is_open
    with pytest.raises(CollectiveError, match="have ended"):
        replicas.run("fails", [{}], lambda: 1)


def test_an_error_of_the_first_rank_is_raised_as_it_is() -> None:
    replicas, _ = loaded(2)

    def own() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        replicas.run("sum", [{"x": np.ones((1, 2), "float32")}], own)
    assert not replicas.is_open


def test_forgotten_replicas_end_their_threads_and_free_their_state() -> None:
    replicas, own = loaded(3)
    feed = {"x": np.ones((1, 2), "float32")}
    replicas.run("sum", [feed, feed], lambda step=own: step(feed))
    scope, threads = weakref.ref(replicas._scopes[1]["model"]), replicas._turns._threads
    del replicas, own
    gc.collect()
    assert scope() is None
    for thread in threads:
        thread.join(5.0)
    assert len(threads) == 2 and not any(thread.is_alive() for thread in threads)


def test_long_steps_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.replicas.replicas.available_processors", lambda: 2)
    replicas = Replicas(3)
    replicas.load("none", [Module.parse(FAILS)] * 2)
    step = replicas._loaded["none"]
    for seconds, width in [(9.0, 1), (WIDE_FROM, 1), (2.1 * WIDE_FROM, 2), (WIDE_FROM, 2)]:
        replicas._choose_width(step, seconds)
        assert step.width == width
    replicas._choose_width(step, 0.4 * WIDE_FROM)
    assert step.width == 1
    replicas.close()
