"""`os.fork` while other threads run steps, compile and read: the child can run a program."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.machine import MACHINES
from compiler.support.cached_property import cached_property
from compiler.support.lazy_loading import load
from runtime.native import build
from runtime.prefetching_reader import Prefetcher

SECONDS = 20
"""After which a child hangs."""


def network(width: int = 4) -> tuple[fluid.Program, fluid.Program, Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [width])
        return main, startup, fluid.layers.mean(fluid.layers.fc(x, 3))


def child(work: Callable[[], None]) -> int:
    """Do some work in a child; its exit code, 0 where it came to its end; -9 where it hung."""
    process = os.fork()
    if not process:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return -signal.SIGKILL


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do work again and again in another thread."""
    stopped = threading.Event()

    def again() -> None:
        while not stopped.is_set():
            work()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def test_a_child_runs_the_program_that_another_thread_is_running() -> None:
    main, startup, loss = network()
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    feed = {"x": np.ones((2000, 4), "float32")}

    def run() -> None:
        executor.run(main, feed, [loss], scope=scope)

    with beside(run):
        assert [child(run) for _ in range(12)] == [0] * 12


def test_a_child_compiles_while_another_thread_compiles() -> None:
    def make() -> None:
        main, startup, loss = network()
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        executor.run(main, {"x": np.ones((2, 4), "float32")}, [loss], scope=scope)

    with beside(make):
        assert [child(make) for _ in range(8)] == [0] * 8


def test_a_child_uses_the_predictor_that_other_threads_use(tmp_path: Path) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, startup, loss = network()
        executor = fluid.Executor()
        executor.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [loss], executor, main)
    predictor = fluid.create_predictor(str(tmp_path), at_once=1)
    feed = {"x": np.ones((2000, 4), "float32")}

    def run() -> None:
        predictor.run(feed)

    with beside(run):
        assert [child(run) for _ in range(12)] == [0] * 12


def test_a_fork_waits_for_an_import_of_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "imported_slowly"
    (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(0.3)\nvalue = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def importing() -> Any:
        return load(lambda: import_module(name))

    thread = threading.Thread(target=importing)
    thread.start()
    while name not in sys.modules:
        time.sleep(0.001)

    def use() -> None:
        assert importing().value == 1

    assert child(use) == 0
    thread.join()
    del sys.modules[name]


def test_a_fork_waits_for_a_compilation_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its LLVM objects would be freed in the child, where llvmlite's lock may be held for ever."""
    started, ended = threading.Event(), threading.Event()

    def compiled(*_: object) -> bytes:
        started.set()
        time.sleep(0.3)
        ended.set()
        return b""

    monkeypatch.setattr(build, "_object", compiled)
    thread = threading.Thread(target=build.build, args=({"a": "", "b": ""}, MACHINES["avx2"], 2))
    thread.start()
    started.wait()

    def look() -> None:
        assert ended.is_set()

    assert child(look) == 0
    thread.join()


def test_a_child_computes_the_property_that_another_thread_was_computing() -> None:
    class Slow:
        @cached_property
        def value(self) -> int:
            started.set()
            time.sleep(0.3)
            return 1

    started, slow = threading.Event(), Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    started.wait()

    def use() -> None:
        assert slow.value == Slow().value == 1

    assert child(use) == 0
    thread.join()
    assert vars(slow) == {"value": 1}


def test_a_reader_of_the_parent_ends_in_a_child_with_an_error() -> None:
    started = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        started.set()
        time.sleep(0.5)
        yield 2

    with Prefetcher(slow, 4) as items:
        started.wait()

        def read() -> None:
            assert next(items) == 1
            with pytest.raises(RuntimeError, match="start the reader after the fork"):
                next(items)

        assert child(read) == 0
        assert list(items) == [1, 2]


def test_a_child_reads_by_a_reader_of_its_own() -> None:
    def read() -> None:
        with Prefetcher(lambda: range(5), 2) as items:
            assert list(items) == [0, 1, 2, 3, 4]

    with Prefetcher(lambda: iter(int, 1), 2):  # its thread waits with the lock of its queue
        assert [child(read) for _ in range(5)] == [0] * 5
