"""Pool: modules run as ranks of this machine; feeds, fetches and state move through memory."""

import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import runtime
from compiler.codegen.module import Module
from runtime.blas import BlasThreads
from runtime.collective.engine import torch_module
from runtime.errors import CollectiveError, FeedError, TooLarge, WorkerError
from runtime.parallel import Pool
from runtime.parallel.fork_server import fork_server
from runtime.parallel.region import FIRST_SIZE, SharedRegion
from tests.support.modules import SUM_OF_RANKS
from tests.support.ports import free_endpoints

VALUES = """
import numpy as np
NAME = "values"
TARGET = "numpy"
DIMS = ("N",)
FEEDS = (("n", "int64", ("N",)),)
PARAMS = ()
FETCHES = (("list", "float32", ()), ("half", "bfloat16", ()), ("empty", "bool", ()))
BUFFERS = ()
import ml_dtypes

def bind(take, params, N):
    def step(n):
        parts = [np.full((size, 3), size, "float32") for size in n.tolist()]
        return (parts, np.ones(int(n.sum()), ml_dtypes.bfloat16), np.zeros((0, 2), "bool"))
    return step
"""
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


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool([CPU, CPU], deadline=30.0) as created:
        yield created


def own(pool: Pool, source: str, params: Any = None) -> Any:
    return runtime.load(Module.parse(source), CPU, params, names={"collective": pool.rings})


def test_steps_of_a_module_with_state(pool: Pool) -> None:
    state = {"w": np.array([1, 10], "float32")}
    pool.load("sum", Module.parse(SUM_OF_RANKS), scope="model")
    pool.set_state("model", state)
    executable = own(pool, SUM_OF_RANKS, {"w": state["w"].copy()})
    for step in range(2):
        feeds = [np.full((rows, 2), rows, "float32") for rows in (3, 5 + 9000 * step)]
        (y, total), [[theirs, their_total]] = pool.run(
            "sum", [{"x": feeds[1]}], lambda x=feeds[0]: executable({"x": x})
        )
        expected = (feeds[0].sum(0) + feeds[1].sum(0)) * (state["w"] + step)
        np.testing.assert_allclose(total, expected, rtol=1e-6)
        np.testing.assert_array_equal(total, their_total)
        np.testing.assert_array_equal(theirs, feeds[1] + 1)
        np.testing.assert_array_equal(y, feeds[0] + 1)
    np.testing.assert_array_equal(pool.get_state(1, "model", ["w"])["w"], [3, 12])
    pool.set_state("model", state)
    np.testing.assert_array_equal(pool.get_state(1, "model", ["w"])["w"], [1, 10])
    pool.drop(["sum"], ["model"])


def test_fetches_that_data_sizes_and_lists(pool: Pool) -> None:
    pool.load("values", Module.parse(VALUES))
    for sizes in ([1, 2], [40000, 0, 3]):
        pool.start_run("values", [{"n": np.array(sizes)}])
        ((parts, half, empty),) = pool.finish_run()
        assert [part.shape for part in parts] == [(size, 3) for size in sizes]
        assert all((part == len(part)).all() for part in parts)
        assert half.dtype == ml_dtypes.bfloat16
        assert half.shape == (sum(sizes),)
        assert (empty.dtype, empty.shape) == (np.dtype(bool), (0, 2))


def test_feeds_that_are_missing(pool: Pool) -> None:
    pool.load("values", Module.parse(VALUES))
    with pytest.raises(FeedError, match="missing feed of rank 1: 'n'"):
        pool.start_run("values", [{}])
    pool.start_run("values", [{"n": np.array([1])}])
    with pytest.raises(CollectiveError, match="is already in progress"):
        pool.start_run("values", [{"n": np.array([1])}])
    assert len(pool.finish_run()) == 1


def test_a_forked_child_leaves_the_pool_alone(pool: Pool) -> None:
    with warnings.catch_warnings(action="ignore"):  # Python 3.12 warns of threads in forks
        child = os.fork()
    if not child:
        code = 1
        try:
            pool.start_run("values", [{"n": np.array([1])}])
        except CollectiveError:
            pool.abort()
            pool._finalizer()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    pool.load("values", Module.parse(VALUES))
    pool.start_run("values", [{"n": np.array([1])}])
    assert len(pool.finish_run()) == 1


def test_ranks_on_cpus_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    torch_module.cache_clear()
    with Pool([CPU, CPU], deadline=30.0) as pool:
        pool.load("sum", Module.parse(SUM_OF_RANKS))
        pool.set_state("", {"w": np.ones(2, "float32")})
        step, feed = (
            own(pool, SUM_OF_RANKS, {"w": np.ones(2, "float32")}),
            {"x": np.ones((3, 2), "float32")},
        )
        assert pool.run("sum", [feed], lambda: step(feed)[1].tolist())[0] == [6.0, 6.0]


def test_an_error_names_the_rank_and_the_line_and_ends_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FLUID_TRACEBACK", raising=False)
    pool = Pool([CPU, CPU], deadline=30.0)
    pids = [worker.pid for worker in pool.workers]
    pool.load("fails", Module.parse(FAILS))
    pool.start_run("fails", [{}])
    with pytest.raises(WorkerError, match=r"rank 1 .* raised OverflowError: too many rows") as seen:
        pool.finish_run()
    assert (seen.value.rank, seen.value.kind) == (1, "OverflowError")
    assert 'raise OverflowError("too many rows")' in seen.value.trace
    _, line, hint = str(seen.value).splitlines()
    assert line.startswith("  line: ") and line.endswith(" in step")
    assert hint == "  hint: set FLUID_TRACEBACK=full to see the traceback of that process"
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    with pytest.raises(CollectiveError, match="make another pool"):
        pool.start_run("fails", [{}])


def test_a_setting_shows_the_traceback_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_TRACEBACK", "full")
    pool = Pool([CPU, CPU], deadline=30.0)
    pool.load("fails", Module.parse(FAILS))
    pool.start_run("fails", [{}])
    with pytest.raises(WorkerError, match="its traceback:") as seen:
        pool.finish_run()
    assert 'raise OverflowError("too many rows")' in str(seen.value)


def test_one_process_forks_the_workers_of_all_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the folder that its caller has then."""
    server = fork_server()
    monkeypatch.chdir(tmp_path)
    with Pool([CPU, CPU], deadline=30.0) as pool:
        worker = Path(f"/proc/{pool.workers[0].pid}")
        assert f"PPid:\t{server.pid}\n" in (worker / "status").read_text()
        assert (worker / "cwd").resolve() == tmp_path.resolve()
    assert fork_server() is server and not worker.exists()


def test_a_pool_that_is_forgotten_ends_its_workers_and_its_limit_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    blas = BlasThreads(threads.append, 3)
    monkeypatch.setattr("runtime.parallel.pool.blas_threads", lambda: blas)
    pool = Pool([CPU, CPU], deadline=30.0)
    environment = Path(f"/proc/{fork_server().pid}/environ").read_bytes()
    assert b"OPENBLAS_NUM_THREADS=1" in environment
    pid = pool.workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    assert threads == [1]
    del pool
    gc.collect()
    assert threads == [1, 3]
    end = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def test_offsets_outside_shared_memory() -> None:
    region = SharedRegion.create()
    places = region.write([np.arange(3), [np.ones(2), np.ones(0)]])
    array, parts = SharedRegion(os.dup(region.descriptor)).read(places, copies=True)
    np.testing.assert_array_equal(array, np.arange(3))
    assert [len(part) for part in parts] == [2, 0]
    for place in (["int64", [1 << 40], 0], ["int64", [3], 1 << 40]):
        with pytest.raises(CollectiveError, match="is outside the"):
            region.read([place], copies=True)
    for place in (["int64", [-1], 0], ["int64", [3]], ["int64", [2.5], 0], 7, [3]):
        with pytest.raises(CollectiveError, match="malformed array location"):
            region.read([place], copies=True)
    with pytest.raises(CollectiveError, match="must be a list"):
        region.read({"values": 1}, copies=True)
    with pytest.raises(TooLarge):
        region.write([np.broadcast_to(np.float64(0), (1 << 45,))])
    region.close()


def test_a_region_that_was_cleared_is_used_again() -> None:
    region = SharedRegion.create()
    other = SharedRegion(region.descriptor)
    for value in (1.0, 2.0):
        places = region.write([np.full(1 << 15, value)])
        (array,) = other.read(places, copies=True)
        assert array[0] == array[-1] == value
        region.clear()
        assert os.fstat(region.descriptor).st_size == region.nbytes == FIRST_SIZE
    region.close()


def test_a_scope_is_dropped_with_the_next_step_and_not_amid_one(monkeypatch: Any) -> None:
    """A finalizer may ask for it at any moment, even between a message and its reply."""
    pool = object.__new__(Pool)
    dropped: list[Any] = []
    pool.forgotten, pool.workers, pool._keys, pool._running = [], [], {"key": ()}, ""
    pool.rings = cast(Any, SimpleNamespace(step=0))
    monkeypatch.setattr(pool, "_expect_open", lambda: None)
    monkeypatch.setattr(pool, "drop", lambda **given: dropped.append(given))
    pool.forgotten.append("scope1")
    assert dropped == []
    pool.start_run("key", [])
    assert dropped == [{"scopes": ["scope1"]}]
    assert pool.forgotten == []


def test_other_trainers_name_the_error_that_ended_a_pool() -> None:
    endpoints, raised = free_endpoints(2), list[BaseException]()

    def train(number: int) -> None:
        try:
            with Pool([CPU], endpoints=endpoints, trainer=number, trainers=2, deadline=30) as pool:
                pool.load("", [])
                pool.run("", [], lambda: work(pool, number))
        except CollectiveError as error:
            raised.append(error)
        except OverflowError:
            pass

    def work(pool: Pool, number: int) -> None:
        if number:
            raise OverflowError("too many rows")
        pool.rings.all_reduce(0, "w", "sum", np.ones(2, "float32"))

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["it raised OverflowError: too many rows" in str(error) for error in raised] == [True]
