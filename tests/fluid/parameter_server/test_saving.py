"""Models of jobs, saved by a trainer, a server or an op, and trained on by another job."""

import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.parameter_server.saving import local_names, parts_of
from runtime.files.checkpoint import load_tensor
from runtime.ps.serving.snapshot import read_snapshot, snapshot_path
from tests.fluid.parameter_server.processes import (
    finished,
    make_job,
    results,
    running,
    start,
    trained,
)
from tests.fluid.parameter_server.role import alone
from tests.fluid.parameter_server.test_synchronous_training import WITHIN, distance
from tests.fluid.transpiler.distribute.server_job import SERVERS, transpiled
from tests.fluid.transpiler.test_distribute_transpiler import config, wide

MODELS = {"far_words": "sgd@piecewise", "ctr_wide_deep": "adam@piecewise"}


def tensor(path):
    return load_tensor(path)[0]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """For each model a job of three steps that saves, and one of three more that loads."""
    created = {}
    for model, optimizer in MODELS.items():
        folder = tmp_path_factory.mktemp(model)
        files = str(folder / "saved")
        where = {"config": {"ps_save_dir": str(folder)}}
        first = make_job(folder / "first", model, optimizer, steps=3, save=files, **where)
        again = where | {"first": 3, "steps": 6, "load": files, "save": str(folder / "at_the_end")}
        created[model] = first, make_job(folder / "second", model, optimizer, **again)
    trained(*(job for pair in created.values() for job in pair))
    return created


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_is_that_of_one_process(jobs, model):
    job = jobs[model][0]
    expected = alone(job)[0]
    actual = {name: tensor(Path(job["save"]) / name) for name in expected}
    assert distance(actual, expected) <= WITHIN


@pytest.mark.parametrize("model", MODELS)
def test_training_continues_from_a_saved_model(jobs, model):
    """Tables, what optimizers remember and the learning-rate schedule are where they were."""
    job = jobs[model][1]
    expected = alone({**job, "first": 0})[0]
    actual = {name: tensor(Path(job["save"]) / name) for name in expected}
    assert distance(actual, expected) <= WITHIN
    for result in results(job):
        fake = {"shared"} if model == "far_words" else set()
        assert distance(result, expected, fake) <= WITHIN


def test_ops_save_one_variable_and_the_shards_of_a_table(jobs):
    for first, _ in jobs.values():
        folder = Path(first["save"])
        (received,) = (folder / "received").iterdir()
        np.testing.assert_array_equal(tensor(received), tensor(folder / received.name))
    folder = Path(jobs["far_words"][0]["save"])
    table = tensor(folder / "shared")
    assert sorted(path.name for path in (folder / "shards").iterdir()) == ["shared_0", "shared_1"]
    for server in range(2):
        rows = tensor(folder / "shards" / f"shared_{server}")
        np.testing.assert_array_equal(rows, table[server::2])


def test_counters_of_trainers_that_do_not_wait_are_loaded_as_their_sum():
    def optimizer():
        return fluid.optimizer.Momentum(fluid.layers.exponential_decay(0.1, 100, 0.99), 0.9)

    settings = config(sync_mode=False)
    created = transpiled(wide(optimizer), config=settings, sync_mode=False)
    parts = parts_of(created[0].get_pserver_program(SERVERS.split(",")[0]))
    shares = [f"@LR_DECAY_COUNTER@.trainer_{trainer}" for trainer in range(2)]
    saved = np.array([17])
    assert [parts[name].origin for name in shares] == ["@LR_DECAY_COUNTER@"] * 2
    assert [int(parts[name].cut(saved)[0]) for name in shares] == [17, 0]
    moments = [name for name in parts if "velocity" in name]
    assert len(moments) == 2
    assert parts_of(created[1]) == {}


def test_geo_trainers_save_optimizer_state():
    settings = config(sync_mode=False, geo_sgd_mode=True)
    build = wide(lambda: fluid.optimizer.Momentum(0.1, 0.9))
    transpiler, main, _, _ = transpiled(build, config=settings, sync_mode=False)
    parts = parts_of(transpiler.get_pserver_program(SERVERS.split(",")[0]))
    assert {part.origin for part in parts.values()} == {"fc_w", "fc_b"}
    names = [var.name for var in main.list_vars() if var.persistable]
    assert len([n for n in local_names(main, iter(names)) if "velocity" in n]) == 2


def test_a_model_of_another_program_is_not_loaded():
    server = transpiled(wide())[0].get_pserver_program(SERVERS.split(",")[1])
    (part,) = parts_of(server).values()
    with pytest.raises(ValueError, match=r"'fc_w' was saved as \[3, 2\], the program has \[1000"):
        part.cut(np.zeros((3, 2), np.float32))


def test_sigterm_takes_a_snapshot_from_which_a_new_server_continues(tmp_path):
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
    assert all(distance(result, expected) <= WITHIN for result in results(job))
    assert not path.exists()


def await_line(process, text, seconds=40.0):
    """Wait until a process has written a line with a text to stdout."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if re.search(rf"{text}\b", process.stdout.readline()):
            return
    raise AssertionError(f"no {text!r} within {seconds} s")
