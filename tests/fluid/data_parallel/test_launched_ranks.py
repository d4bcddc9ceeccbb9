"""Processes that were started apart train as one process does on the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from tests.fluid.data_parallel.ranks import OPTIMIZERS, Training, share
from tests.support.ports import free_endpoints

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "ranks.py"
SECONDS = 120
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "60000"}


def started_apart(ranks: int, folder: Path, jobs: list[str]) -> None:
    """Start every rank by itself, with the variables that a launcher would set."""
    endpoints = free_endpoints(ranks)
    started = []
    for rank, endpoint in enumerate(endpoints):
        variables = {
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(ranks),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_CURRENT_ENDPOINT": endpoint,
        }
        command = [sys.executable, str(SCRIPT), str(folder), *jobs]
        started.append(
            subprocess.Popen(command, env=ENVIRONMENT | variables, stderr=subprocess.PIPE)
        )
    try:
        errors = [process.communicate(timeout=SECONDS)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(errors)


def by_launcher(ranks: int, folder: Path, jobs: list[str]) -> None:
    """Let `fluid launch` start the ranks."""
    command = [sys.executable, "-m", "fluid", "launch", "--nproc_per_node", str(ranks)]
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder), *jobs],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr


STARTS = {"apart": started_apart, "launch": by_launcher}


def alone(network: str) -> tuple[list[float], dict[str, Any]]:
    """Losses and parameters of one process on whole batches, from what rank 0 begins with."""
    training = Training(network, seed=7)
    training.executor.run(training.startup, scope=training.scope)
    losses = [training.step(batch).item() for batch in training.batches]
    return losses, training.parameters()


def local_sgd(network: str, ranks: int) -> dict[str, Any]:
    """Parameters by the formula: parameter = snapshot - mean(snapshot - local), every step.

    Statistics of batch norms are no part of it: each rank keeps its own.
    """
    locals_ = [Training(network, seed=7) for _ in range(ranks)]
    for local in locals_:
        local.executor.run(local.startup, scope=local.scope)
    trained = {
        parameter.name for parameter in locals_[0].main.all_parameters() if parameter.trainable
    }
    snapshot = {n: value for n, value in locals_[0].parameters().items() if n in trained}
    for batch in locals_[0].batches:
        for rank, local in enumerate(locals_):
            local.step(share(batch, rank, ranks))
        updated = [local.parameters() for local in locals_]
        for name, before in snapshot.items():
            snapshot[name] = before - np.mean([before - own[name] for own in updated], axis=0)
        for local in locals_:
            for name, value in snapshot.items():
                local.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    return snapshot


MODES = ("nccl2", "grad_allreduce", "local_sgd")
EVERY = [f"{mode}/{name}" for mode in MODES for name in OPTIMIZERS]


@pytest.mark.parametrize(
    ("ranks", "start", "jobs"),
    [
        (2, "apart", ["nccl2/digits_mlp", "grad_allreduce/ctr_wide_deep"]),
        pytest.param(1, "apart", ["nccl2/digits_mlp"], marks=pytest.mark.slow),
        (3, "apart", ["nccl2/digits_mlp", "local_sgd/digits_mlp"]),
        pytest.param(1, "launch", EVERY[: len(OPTIMIZERS)], marks=pytest.mark.slow),
        pytest.param(2, "apart", EVERY, marks=pytest.mark.slow),
        pytest.param(3, "launch", EVERY, marks=pytest.mark.slow),
        pytest.param(4, "apart", ["hierarchical/digits_mlp", *EVERY], marks=pytest.mark.slow),
    ],
)
def test_ranks_train_as_one(ranks: int, start: str, jobs: list[str], tmp_path: Path) -> None:
    STARTS[start](ranks, tmp_path, jobs)
    results = [np.load(tmp_path / f"rank{rank}.npz") for rank in range(ranks)]
    for job in jobs:
        mode, network = job.split("/")
        losses, parameters = alone(network)
        if mode == "local_sgd":
            parameters = local_sgd(network, ranks)
        else:
            each = [one[f"{job}:loss"] for one in results]
            np.testing.assert_allclose(np.mean(each, axis=0), losses, atol=1e-5)
        for one in results:
            assert ranks == 1 or all(one[f"{job}:issued"]), "a ring was not used"
            for name, value in parameters.items():
                np.testing.assert_allclose(one[f"{job}:{name}"], value, atol=1e-5, err_msg=name)
