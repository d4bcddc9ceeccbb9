"""Trainers and servers compute together what one process does on whole batches."""

import numpy as np
import pytest

from tests.fluid.parameter_server import processes, threads
from tests.fluid.parameter_server.processes import make_job
from tests.fluid.parameter_server.role import alone

JOBS = [
    ("digits_mlp", "sgd", 1, 1),
    ("digits_mlp", "momentum+l2", 2, 2),
    ("digits_mlp", "adam", 3, 3),
    ("digits_mlp", "momentum+clip_global", 3, 2),
    ("fit_a_line", "adam@piecewise", 3, 1),
    ("two_layers_wide", "momentum+clip_global", 2, 3),
    ("word2vec", "sgd", 2, 2),
    ("far_words", "sgd", 2, 2),
    ("ctr_wide_deep", "adagrad", 2, 2),
]


@pytest.mark.parametrize(("model", "optimizer", "trainers", "servers"), JOBS)
def test_equals_one_process(tmp_path, model, optimizer, trainers, servers):
    job = make_job(tmp_path, model, optimizer, trainers, servers)
    expect_equal(job, threads.trained(job))


def test_equals_one_process_in_processes(tmp_path):
    job = make_job(tmp_path, "digits_mlp", "momentum+clip_global")
    expect_equal(job, processes.trained(job))


def expect_equal(job, found):
    """Parameters and losses of all trainers are those of one process on whole batches."""
    expected, losses = alone(job)
    mean = np.mean([each["losses"] for each in found], axis=0)
    np.testing.assert_allclose(mean, losses, rtol=1e-4, atol=1e-6)
    for each in found:
        fake = {"shared"} if job["model"] == "far_words" else set()  # servers save it themselves
        names = sorted((each.keys() & expected.keys()) - fake)
        ours, theirs = (np.concatenate([of[n].ravel() for n in names]) for of in (each, expected))
        assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(theirs)


@pytest.mark.parametrize(
    "config",
    [
        {"sync_mode": False},
        {"sync_mode": False, "runtime_split_send_recv": True},
        {"sync_mode": False, "runtime_split_send_recv": True, "half_async": True},
        {"sync_mode": False, "geo_sgd_mode": True, "geo_sgd_need_push_nums": 5},
        {"sync_mode": False, "enable_dc_asgd": True},
    ],
    ids=["half_async_server", "async", "half_async", "geo", "dc_asgd"],
)
def test_trainers_that_do_not_wait_learn(tmp_path, config):
    talks = "runtime_split_send_recv" in config or "geo_sgd_mode" in config
    more = {"sync": False, "config": config, "communicator": talks, "steps": 60}
    job = make_job(tmp_path, "digits_mlp", "sgd", **more)
    losses = np.mean([each["losses"] for each in threads.trained(job)], axis=0)
    assert losses[-10:].mean() < losses[:10].mean() - 0.03  # labels are drawn by chance: ln 10
