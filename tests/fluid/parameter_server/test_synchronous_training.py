"""Trainers and servers compute together what one process does on whole batches.

Batch norm normalizes by the rows that a process has, and its moving statistics are no parameters
that are sent, as in the reference: each trainer has its own. So with batch norm, a job equals one
process where the shares of a batch are equal, statistics included; where they differ, a step is the
mean of the steps that each share makes alone.

Adam and Adagrad have a large epsilon here: of gradients that are rounding errors they make whole
steps otherwise. Nets with batch norm also learn a tenth as fast: with the rate of the others, one
process that is given its rows three times over leaves itself by 0.3 in 20 steps with Adam.
"""

from itertools import product

import numpy as np
import pytest

from tests.fluid.parameter_server import processes, threads
from tests.fluid.parameter_server.processes import make_job
from tests.fluid.parameter_server.role import alone
from tests.support.ports import free_endpoints

JOBS = [
    ("digits_mlp", "sgd", 1, 1),
    pytest.param("digits_mlp", "momentum+l2", 2, 2, marks=pytest.mark.slow),
    ("digits_mlp", "adam", 3, 3),
    ("digits_mlp", "momentum+clip_global", 3, 2),
    ("lenet_bn", "momentum+l2", 2, 2),
    ("fit_a_line", "adam@piecewise", 3, 1),
    ("two_layers_wide", "momentum+clip_global", 2, 3),
    ("word2vec", "sgd", 2, 2),
    pytest.param("word2vec", "momentum+clip_global", 2, 1, marks=pytest.mark.slow),
    ("far_words", "sgd", 2, 2),
    ("ctr_wide_deep", "adagrad", 2, 2),
    ("tree", "adam", 2, 2),
    ("noise", "momentum+l2", 1, 2),
    pytest.param("mnist", "adam", 2, 2, marks=pytest.mark.slow),
    ("se_resnext", "momentum+l2@piecewise", 2, 2),
    ("transformer", "adam@noam", 2, 2),
    ("text_classification", "sgd", 2, 2),
    ("simnet_bow", "adam", 2, 2),
]
ON_DEVICES = {"fit_a_line": {"devices": 2}, "simnet_bow": {"devices": 2}}
"""Jobs whose trainers run on several CPU devices."""
NETS = ("digits_mlp", "lenet_bn", "word2vec", "ctr_wide_deep", "two_layers_wide")
OPTIMIZERS = ("sgd", "momentum+l2", "adam", "adagrad", "sgd@piecewise", "momentum+clip_global")
COUNTS = list(product((1, 2, 3), (1, 2, 3)))
"""Trainers and servers."""
WITHIN = 2e-6
"""How far the parameters of a job may be from those of one process, as a share of their norm."""


@pytest.mark.parametrize(("model", "optimizer", "trainers", "servers"), JOBS)
def test_equals_one_process(tmp_path, model, optimizer, trainers, servers):
    job = make_job(tmp_path, model, optimizer, trainers, servers, **ON_DEVICES.get(model, {}))
    assert apart(job, threads.trained(job)) <= WITHIN


def test_equals_one_process_in_processes(tmp_path):
    counts = [(1, 2), (2, 1), (2, 2)]
    chosen = [(NETS[i], OPTIMIZERS[i], *count) for i, count in enumerate(counts)]
    expect_equal(tmp_path, chosen, 60.0)


@pytest.mark.slow
@pytest.mark.parametrize("model", NETS)
def test_equals_one_process_for_every_optimizer_and_count(tmp_path, model):
    chosen = [(model, optimizer, *counts) for optimizer, counts in product(OPTIMIZERS, COUNTS)]
    expect_equal(tmp_path, chosen, 900.0)


def expect_equal(folder, chosen, seconds):
    """Run jobs in processes; every one must equal one process."""
    ports = free_endpoints(3 * len(chosen))
    jobs = [make_job(folder / str(i), *each) for i, each in enumerate(chosen)]
    for index, job in enumerate(jobs):
        job["endpoints"] = ports[3 * index : 3 * index + len(job["endpoints"])]
    result = processes.trained(*jobs, seconds=seconds)
    distances = {chosen[i]: apart(job, result[i]) for i, job in enumerate(jobs)}
    print(f"\n{len(jobs)} jobs, the farthest {max(distances.values()):.2e}")
    assert {each: far for each, far in distances.items() if far > WITHIN} == {}


def apart(job, found):
    """How far parameters of any trainer are from those of one process; losses must be its losses."""
    expected, losses = alone(job)
    mean = np.mean([each["losses"] for each in found], axis=0)
    np.testing.assert_allclose(mean, losses, rtol=1e-4, atol=1e-6)
    fake = {"shared"} if job["model"] == "far_words" else set()  # see test_saving.py
    return max(distance(each, expected, fake) for each in found)


def distance(found, expected, left_out=()):
    """The norm of a difference of parameters as a share of that of the expected ones."""
    names = sorted((found.keys() & expected.keys()) - set(left_out))
    assert names
    ours, theirs = (np.concatenate([of[n].ravel() for n in names]) for of in (found, expected))
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


def test_batch_norm_of_different_shares(tmp_path):
    job = make_job(tmp_path, "lenet_bn", "sgd", equal_shares=False, steps=1)
    result = threads.trained(job)
    shares = [alone({**job, "share": number})[0] for number in range(2)]
    moving = [name for name in shares[0] if name.startswith("batch_norm") and ".w_" in name]
    statistics = {name for name in moving if name.endswith((".w_1", ".w_2"))}
    assert len(statistics) == 2
    for number in range(2):
        assert distance(result[number], {n: shares[number][n] for n in statistics}) <= WITHIN
        mean = {n: (shares[0][n] + shares[1][n]) / 2 for n in shares[0] if n not in statistics}
        assert distance(result[number], mean) <= WITHIN
    for name in statistics:
        assert not np.allclose(result[0][name], result[1][name])
