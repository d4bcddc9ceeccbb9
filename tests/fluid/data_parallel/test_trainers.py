"""Trainers on several machines, here processes of one: they train as one device does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_parallel.trainers import ALONE, trainers_of
from tests.support.ports import free_endpoints

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "fluid" / "scripts" / "trainer.py"


def started(trainers: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """Processes of the script, one for each trainer."""
    endpoints = ",".join(free_endpoints(trainers))
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(number), endpoints, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(trainers)
    ]


def trained(trainers: int, devices: int, reduce: str) -> list[dict[str, Any]]:
    """What each trainer prints."""
    processes = started(trainers, str(devices), reduce)
    outputs = [process.communicate(timeout=120) for process in processes]
    assert all(process.returncode == 0 for process in processes), outputs
    return [json.loads(output) for output, _ in outputs]


@pytest.mark.slow
def test_a_trainer_that_reads_alone_is_reported() -> None:
    processes = started(2, "1", "Reduce", "alone")
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    for _, complaints in outputs:
        assert "ScheduleError" in complaints and "broadcast of 'fc_" in complaints


def alone() -> tuple[list[float], dict[str, Any]]:
    """The losses and values of one device on whole batches, from what trainer 0 begins with."""
    fluid.default_startup_program().random_seed = 1
    hidden = fluid.layers.fc(fluid.data("x", [None, 2]), 3)
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor, draw = fluid.Executor(), np.random.default_rng(0)
    executor.run(fluid.default_startup_program())
    batches = [draw.random((8, 2), np.float32) for _ in range(3)]
    batches.append(batches[-1])
    losses = [executor.run(feed={"x": batch}, fetch_list=[loss])[0].item() for batch in batches]
    values = {n: np.array(v) for n, v in fluid.global_scope().arrays().items()}
    return losses[:3], values


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(
    ("trainers", "devices", "reduce"),
    [
        (2, 1, "Reduce"),
        pytest.param(2, 1, "AllReduce", marks=pytest.mark.slow),
        pytest.param(2, 2, "AllReduce", marks=pytest.mark.slow),
        pytest.param(2, 2, "Reduce", marks=pytest.mark.slow),
        pytest.param(4, 1, "Reduce", marks=pytest.mark.slow),
    ],
)
def test_trainers_together(trainers: int, devices: int, reduce: str) -> None:
    actual = trained(trainers, devices, reduce)
    losses = np.array([each["losses"] for each in actual])
    assert losses.shape == (trainers, 3, devices)
    expected, values = alone()
    np.testing.assert_allclose(losses.mean(axis=(0, 2)), expected, atol=1e-6)
    for each in actual:
        for name, value in each["values"].items():
            np.testing.assert_allclose(value, values[name].ravel(), atol=1e-6, err_msg=name)
    state = [value.size for name, value in values.items() if "velocity" in name]
    if reduce == "Reduce":
        assert max(each["held"] for each in actual) <= max(sum(state) / trainers + 1, max(state))
        assert devices > 1 or sum(each["held"] for each in actual) == sum(state)
    else:
        assert all(each["held"] == sum(state) for each in actual)


def strategy(**fields: Any) -> Any:
    created = fluid.BuildStrategy()
    for name, value in fields.items():
        setattr(created, name, value)
    return created


def test_who_trains_together() -> None:
    program, both = fluid.Program(), ["a:1", "b:1"]
    assert trainers_of(program, strategy()) is ALONE
    created = strategy(num_trainers=2, trainer_id=1, trainers_endpoints=both)
    assert trainers_of(program, created).endpoints == ("a:1", "b:1")
    created.use_hierarchical_allreduce, created.hierarchical_allreduce_inter_nranks = True, 2
    assert trainers_of(program, created).group == 2


def test_trainers_that_there_are_not() -> None:
    program, both = fluid.Program(), ["a:1", "b:1"]
    with pytest.raises(ValueError, match="trainer_id must be from 0 to 1, but it is 2"):
        trainers_of(program, strategy(num_trainers=2, trainer_id=2, trainers_endpoints=both))
    with pytest.raises(ValueError, match="no rendezvous endpoint is set"):
        trainers_of(program, strategy(num_trainers=2))
    program._trainers_endpoints = both
    with pytest.raises(AssertionError, match="num_trainers is 1, but the program has 2"):
        trainers_of(program, strategy())
