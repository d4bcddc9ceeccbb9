"""A device that is lost is named, and the next run starts new processes."""

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_parallel.devices import Devices
from runtime.errors import CollectiveError

pytestmark = pytest.mark.usefixtures("fresh_programs", "two_devices")
FEED = {"x": np.ones((4, 1), np.float32)}


def training(exe: Any, reduce: Any) -> tuple[fluid.Variable, Any]:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 1]), 3))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe.run(fluid.default_startup_program())
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = reduce
    program = fluid.CompiledProgram(fluid.default_main_program())
    return loss, program.with_data_parallel(loss_name=loss.name, build_strategy=strategy)


def kill_worker(devices: Devices) -> None:
    os.kill(devices.pool().workers[0].pid, signal.SIGKILL)


def shared_files() -> int:
    """How many files of shared memory this process has open."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum("memfd" in str(link) for link in links)


def test_a_killed_worker_is_named(
    exe: Any, kept_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, program = training(exe, fluid.BuildStrategy.ReduceStrategy.AllReduce)
    (first,) = exe.run(program, feed=FEED, fetch_list=[loss])
    before = shared_files()
    kill_worker(kept_devices)
    with pytest.raises(CollectiveError, match="rank 1 "):
        exe.run(program, feed=FEED, fetch_list=[loss])
    (second,) = exe.run(program, feed=FEED, fetch_list=[loss])
    assert second.shape == (2,) and np.all(second < first)
    kept_devices.pool()  # the new one, too
    gc.collect()
    assert shared_files() == before, "the memory of ended processes stays"


def test_threads_take_turns(exe: Any, kept_devices: Devices) -> None:
    loss, program = training(exe, fluid.BuildStrategy.ReduceStrategy.AllReduce)
    exe.run(program, feed=FEED, fetch_list=[loss])

    def losses() -> list[Any]:
        return [exe.run(program, feed=FEED, fetch_list=[loss])[0][0] for _ in range(20)]

    with ThreadPoolExecutor(2) as threads:
        results = [future.result() for future in [threads.submit(losses) for _ in range(2)]]
    descending = sorted(map(float, results[0] + results[1]), reverse=True)
    assert len(set(descending)) == 40 and sorted(map(float, results[0]), reverse=True) == results[0]


def test_state_that_was_lost_with_its_owner(exe: Any, kept_devices: Devices) -> None:
    loss, program = training(exe, fluid.BuildStrategy.ReduceStrategy.Reduce)
    exe.run(program, feed=FEED, fetch_list=[loss])
    scope = fluid.global_scope()
    names = [n for n in scope.local_var_names() if scope.find_var(n).get_tensor().is_offloaded]
    kill_worker(kept_devices)
    with pytest.raises(CollectiveError, match="rank 1 "):
        exe.run(program, feed=FEED, fetch_list=[loss])
    with pytest.raises(CollectiveError, match=f"the value of '{names[0]}' is lost"):
        np.array(scope.find_var(names[0]).get_tensor())
    with pytest.raises(CollectiveError, match="is lost"):
        exe.run(program, feed=FEED, fetch_list=[loss])
    exe.run(fluid.default_startup_program())
    assert exe.run(program, feed=FEED, fetch_list=[loss])[0].shape == (2,)


def test_an_interrupted_step_ends_the_processes(
    exe: Any, kept_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, program = training(exe, fluid.BuildStrategy.ReduceStrategy.AllReduce)
    exe.run(program, feed=FEED, fetch_list=[loss])
    pool = kept_devices.pool()
    worker = pool.workers[0].pid
    os.kill(worker, signal.SIGSTOP)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with pytest.raises(KeyboardInterrupt):
        exe.run(program, feed=FEED, fetch_list=[loss])
    assert not pool.is_open and not Path(f"/proc/{worker}").exists()
    assert exe.run(program, feed=FEED, fetch_list=[loss])[0].shape == (2,)
