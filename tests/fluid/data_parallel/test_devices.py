"""After an error or Ctrl-C in a step of several devices, the next one continues with the state."""

import gc
import signal
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_parallel.devices import Devices
from fluid.data_parallel.ranks import Ranks
from runtime.errors import CollectiveError, WorkerError
from runtime.replicas import Replicas

pytestmark = pytest.mark.usefixtures("fresh_programs", "two_devices")
GOOD, BAD = ({"x": np.array([[0], [1], [2], [last]], np.int64)} for last in (3, 9))
Reduces = fluid.BuildStrategy.ReduceStrategy


def training(exe: Any, reduce: Any) -> tuple[fluid.Variable, Any]:
    """A loss and a program that trains a table of 5 rows, and a layer."""
    fluid.default_startup_program().random_seed = 3
    rows = fluid.embedding(fluid.data("x", [None, 1], "int64"), [5, 2])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(rows, 3) - 1.0))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe.run(fluid.default_startup_program())
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = reduce
    program = fluid.CompiledProgram(fluid.default_main_program())
    return loss, program.with_data_parallel(loss_name=loss.name, build_strategy=strategy)


def losses(exe: Any, program: Any, loss: fluid.Variable, steps: int) -> list[float]:
    return [float(exe.run(program, GOOD, [loss])[0].mean()) for _ in range(steps)]


@pytest.mark.parametrize("reduce", list(Reduces))
def test_training_continues_after_an_error_of_a_device(exe: Any, reduce: Any) -> None:
    loss, program = training(exe, reduce)
    expected = losses(exe, program, loss, 6)
    exe.run(fluid.default_startup_program())
    results = losses(exe, program, loss, 2)
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"rank 1 .*id 9 at position 1 is not a row"):
            exe.run(program, feed=BAD, fetch_list=[loss])
        results += losses(exe, program, loss, 2)
    assert results == expected


@pytest.mark.parametrize("reduce", list(Reduces))
def test_devices_that_run_at_the_same_time_have_the_same_bits(
    exe: Any, reduce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, program = training(exe, reduce)
    expected = losses(exe, program, loss, 6)
    monkeypatch.setattr(Replicas, "_choose_width", lambda _, step, __: setattr(step, "width", 2))
    exe.run(fluid.default_startup_program())
    assert losses(exe, program, loss, 6) == expected
    with pytest.raises(WorkerError, match=r"rank 1 .*id 9 at position 1 is not a row"):
        exe.run(program, feed=BAD, fetch_list=[loss])


def test_replicas_that_ended_are_freed(exe: Any, kept_devices: Devices) -> None:
    loss, program = training(exe, Reduces.AllReduce)
    losses(exe, program, loss, 1)
    ended: weakref.ref[Ranks] = weakref.ref(kept_devices.pool())
    with pytest.raises(WorkerError):
        exe.run(program, feed=BAD, fetch_list=[loss])
    losses(exe, program, loss, 1)
    kept_devices.pool()  # the new ones, too
    gc.collect()
    assert ended() is None


def test_a_step_leaves_no_process_and_no_shared_memory(exe: Any) -> None:
    def children() -> set[str]:
        return {each for path in Path("/proc/self/task").glob("*/children")
                for each in path.read_text().split()}  # fmt: skip

    def shared_files() -> int:
        links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum("memfd" in str(link) for link in links)

    before = children(), shared_files()
    loss, program = training(exe, Reduces.AllReduce)
    losses(exe, program, loss, 1)
    assert (children(), shared_files()) == before


def test_threads_take_turns(exe: Any) -> None:
    loss, program = training(exe, Reduces.AllReduce)
    expected = losses(exe, program, loss, 40)
    exe.run(fluid.default_startup_program())
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(losses, exe, program, loss, 20) for _ in range(2)]
        results = [run.result() for run in runs]
    assert sorted(results[0] + results[1]) == sorted(expected)


def test_state_that_was_lost_with_a_worker_process(
    exe: Any, kept_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs have a process each, with which state of the strategy Reduce ends."""
    loss, program = training(exe, Reduces.Reduce)
    losses(exe, program, loss, 1)
    scope: Any = fluid.global_scope()
    names = [n for n in scope.local_var_names() if scope.find_var(n).get_tensor().is_offloaded]
    monkeypatch.setattr(type(kept_devices.pool()), "has_state", False)
    with pytest.raises(CollectiveError, match=f"the value of '{names[0]}' is lost"):
        np.array(scope.find_var(names[0]).get_tensor())
    with pytest.raises(WorkerError):
        exe.run(program, feed=BAD, fetch_list=[loss])
    with pytest.raises(CollectiveError, match="is lost"):
        exe.run(program, feed=GOOD, fetch_list=[loss])
    exe.run(fluid.default_startup_program())
    losses(exe, program, loss, 1)


def test_training_continues_after_an_interrupt(exe: Any) -> None:
    loss, program = training(exe, Reduces.Reduce)
    expected = losses(exe, program, loss, 4)
    exe.run(fluid.default_startup_program())
    results = losses(exe, program, loss, 2)
    endless = fluid.Program()
    with fluid.program_guard(endless, fluid.Program()):
        fluid.data("x", [None, 1], "int64")
        count = fluid.layers.fill_constant([1], "int64", 0)
        zero = fluid.layers.fill_constant([1], "int64", 0)
        is_small = fluid.layers.less_equal(zero, count)
        loop = fluid.layers.While(is_small)
        with loop.block():
            fluid.layers.increment(count, 1, in_place=True)
            fluid.layers.less_equal(zero, count, cond=is_small)
    compiled = fluid.CompiledProgram(endless).with_data_parallel()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    with pytest.raises(KeyboardInterrupt):
        exe.run(compiled, feed=GOOD, fetch_list=[count])
    signal.signal(signal.SIGALRM, before)
    assert results + losses(exe, program, loss, 2) == expected
