"""Models of jobs, saved by a trainer, a server or an op, and trained on by another job."""

import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from runtime.checkpoint import load_tensor
from runtime.ps.snapshot import read_snapshot, snapshot_path
from tests.fluid.parameter_server.processes import (
    finished,
    make_job,
    results,
    running,
    start,
    trained,
)
from tests.fluid.parameter_server.role import alone
from tests.fluid.parameter_server.test_synchronous import WITHIN, distance

MODELS = {"far_words": "sgd@piecewise", "ctr_wide_deep": "adam@piecewise"}


def tensor(path):
    return load_tensor(path)[0]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """For each model a job of three steps that saves, and one of three more that loads."""
    made = {}
    for model, optimizer in MODELS.items():
        folder = tmp_path_factory.mktemp(model)
        files = str(folder / "saved")
        first = make_job(folder / "first", model, optimizer, steps=3, save=files)
        again = {"first": 3, "steps": 6, "load": files, "save": str(folder / "at_the_end")}
        made[model] = first, make_job(folder / "second", model, optimizer, **again)
    trained(*(job for pair in made.values() for job in pair))
    return made


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_is_that_of_one_process(jobs, model):
    job = jobs[model][0]
    expected = alone(job)[0]
    found = {name: tensor(Path(job["save"]) / name) for name in expected}
    assert distance(found, expected) <= WITHIN


@pytest.mark.parametrize("model", MODELS)
def test_training_goes_on_from_a_saved_model(jobs, model):
    """Tables, what optimizers remember and the learning-rate schedule are where they were."""
    job = jobs[model][1]
    expected = alone({**job, "first": 0})[0]
    found = {name: tensor(Path(job["save"]) / name) for name in expected}
    assert distance(found, expected) <= WITHIN
    for each in results(job):
        fake = {"shared"} if model == "far_words" else set()
        assert distance(each, expected, fake) <= WITHIN


def test_ops_save_one_variable_and_the_shards_of_a_table(jobs):
    for first, _ in jobs.values():
        folder = Path(first["save"])
        (received,) = (folder / "received").iterdir()
        np.testing.assert_array_equal(tensor(received), tensor(folder / received.name))
    folder = Path(jobs["far_words"][0]["save"])
    table = tensor(folder / "shared")
    assert sorted(each.name for each in (folder / "shards").iterdir()) == ["shared_0", "shared_1"]
    for server in range(2):
        rows = tensor(folder / "shards" / f"shared_{server}")
        np.testing.assert_array_equal(rows, table[server::2])


def test_sigterm_takes_a_snapshot_from_which_a_new_server_goes_on(tmp_path):
    environ = {"FLUID_PS_SNAPSHOT_DIR": str(tmp_path), "FLUID_PS_SNAPSHOT_STEPS": "1000000"}
    job = make_job(tmp_path, "fit_a_line", "adam", 2, 1, steps=300, pause=0.01)
    with running(job, **environ) as (servers, trainers):
        path = snapshot_path(str(tmp_path), job["endpoints"][0])
        await_line(trainers[0], "step 20")
        servers[0].send_signal(signal.SIGTERM)
        assert servers[0].wait(20) == 0
        step = read_snapshot(path).step
        assert 20 <= step < 300
        servers.append(start([job], "server", 0, **environ))
        finished([*trainers, servers[1]])
    expected = alone(job)[0]
    assert all(distance(each, expected) <= WITHIN for each in results(job))
    assert not path.exists()


def await_line(process, text, seconds=40.0):
    """Wait until a process has written a line with a text to stdout."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if re.search(rf"{text}\b", process.stdout.readline()):
            return
    raise AssertionError(f"no {text!r} within {seconds} s")
