"""A trainer of servers on two devices: its process runs the shares of both."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_parallel.devices import Devices
from fluid.data_parallel.server_trainer import ServerTrainer

pytestmark = pytest.mark.usefixtures("fresh_programs")
X = np.arange(6, dtype="float32").reshape(3, 2)
IDS = fluid.create_lod_tensor(np.arange(1, 7).reshape(6, 1), [[1, 2, 3]], fluid.CPUPlace())


def step(feed: Any) -> tuple[list[list[Any]], Any]:
    """The fetches of each device, and how many steps were made."""
    x, ids = fluid.data("x", [None, 2]), fluid.data("ids", [None, 1], "int64", lod_level=1)
    means = fluid.layers.sequence_pool(fluid.layers.cast(ids, "float32"), "sum")
    steps = fluid.layers.create_global_var([1], 0, "float32", persistable=True)
    fluid.layers.increment(steps)
    fetch = fluid.layers.mean(x).name, means.name, ids.name
    program, scope, executor = fluid.default_main_program(), fluid.Scope(), fluid.Executor()
    if feed is None:
        loader = fluid.io.DataLoader.from_generator([x, ids], capacity=2, iterable=False)
        loader.set_batch_generator(lambda: iter([(X, IDS), (X + 6, IDS)]))
        loader.start()
    executor.run(fluid.default_startup_program(), scope=scope)
    devices = Devices([fluid.CPUPlace()], scope)
    strategies = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    trainer = ServerTrainer(program, *strategies, devices, 2)
    results = trainer.run(executor._core, feed, fetch)
    shown = [[np.array(value).tolist() for value in values] for values in results]
    return shown, np.array(scope.find_var(steps.name).get_tensor()).item()


def test_asynchronous_shares_are_steps() -> None:
    values, steps = step({"x": X, "ids": IDS})
    assert values == [[[0.5], [[1]], [[1]]], [[3.5], [[5], [15]], [[2], [3], [4], [5], [6]]]]
    assert steps == 2


def test_synchronous_shares_are_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerTrainer, "_is_synchronous", lambda self: True)
    values, steps = step({"x": X, "ids": IDS})
    assert values == [[[2.5], [[1]], [[1]]], [[2.5], [[5], [15]], [[2], [3], [4], [5], [6]]]]
    assert steps == 1


def test_each_device_reads_a_batch_of_a_loader() -> None:
    values, steps = step(None)
    assert [value[0] for value in values] == [[2.5], [8.5]] and steps == 2
