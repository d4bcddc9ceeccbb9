"""Two workers of `fleet.openks.launcher --mode gpu`: each strategy has the numbers that it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fleet.collective import Collective, DistributedStrategy
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker
from tests.fleet import programs
from tests.fluid.data_parallel.test_launched_ranks import alone, local_sgd

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "scripts/train_collective.py"
AMP_BAND = 0.05
"""How far losses in float16 may be from those in float32, of these; see docs/mixed_precision.md."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two workers has after all jobs of the script."""
    folder = tmp_path_factory.mktemp("collective")
    command = [sys.executable, "-m", "fleet.openks.launcher", "--mode", "gpu", "--worker_num", "2"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "60000"}
    subprocess.run([*command, str(SCRIPT), str(folder)], env=environ, check=True, timeout=150)
    return [dict(np.load(folder / f"rank{rank}.npz")) for rank in range(2)]


def mean_losses(trained: list[dict[str, Any]], job: str) -> Any:
    return np.mean([each[f"{job}:loss"] for each in trained], axis=0)


def expect_equal(trained: list[dict[str, Any]], job: str, expected: Any, apart: float) -> None:
    """The parameters of both workers after a job are the expected ones."""
    for rank in trained:
        for name, value in expected.items():
            np.testing.assert_allclose(rank[f"{job}:{name}"], value, atol=apart, err_msg=name)


@pytest.mark.parametrize("mode", ["nccl2", "grad_allreduce"])
def test_the_quick_start_of_openks_equals_one_process(trained: Any, mode: str) -> None:
    np.testing.assert_allclose(mean_losses(trained, mode), quick_start_losses(), rtol=1e-4)


def test_workers_add_up_their_losses(trained: Any) -> None:
    total = 2 * mean_losses(trained, "nccl2")
    for rank in trained:
        np.testing.assert_allclose(rank["total:loss"], total, rtol=1e-6)


def quick_start_losses() -> Any:
    """The losses of one process on whole batches."""
    with programs.fresh():
        loss = programs.mlp()
        fluid.optimizer.Adagrad(0.01).minimize(loss)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        return np.ravel([executor.run(feed=f, fetch_list=[loss]) for f in programs.batches(4)])


def test_workers_together_train_as_one(trained: Any) -> None:
    losses, parameters = alone("digits_mlp")
    np.testing.assert_allclose(mean_losses(trained, "plain"), losses, atol=1e-5)
    expect_equal(trained, "plain", parameters, 1e-5)


def test_local_sgd_averages_how_far_workers_moved(trained: Any) -> None:
    """With Adagrad this is not the update by summed gradients, which it is with SGD."""
    expect_equal(trained, "local_sgd", local_sgd("ctr_wide_deep", 2), 1e-5)
    summed = alone("ctr_wide_deep")[1]
    apart = [
        np.abs(trained[0][f"local_sgd:{name}"] - value).max() for name, value in summed.items()
    ]
    assert max(apart) > 1e-3


@pytest.mark.parametrize("job", ["amp", "amp_recompute"])
def test_mixed_precision_is_near_float32(trained: Any, job: str) -> None:
    losses, result = mean_losses(trained, "plain"), mean_losses(trained, job)
    np.testing.assert_allclose(result, losses, rtol=AMP_BAND)
    assert not np.array_equal(result, losses)
    first, second = ({n: v for n, v in each.items() if n.startswith(f"{job}:")} for each in trained)
    for name in first.keys() - {f"{job}:loss"}:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_recomputation_changes_no_number(trained: Any) -> None:
    for rank in trained:
        plain = {n.partition(":")[2]: v for n, v in rank.items() if n.startswith("plain:")}
        for name, value in plain.items():
            np.testing.assert_array_equal(rank[f"recompute:{name}"], value, err_msg=name)


def test_recomputation_needs_a_smaller_arena() -> None:
    assert arena_bytes(recompute=True) < 0.8 * arena_bytes(recompute=False)


def arena_bytes(*, recompute: bool) -> int:
    """The arena of one step of a deep net, 256 rows."""
    with programs.fresh():
        hidden, kept = fluid.layers.data("x", [64]), []
        for index in range(12):
            hidden = fluid.layers.fc(hidden, 64, act="tanh")
            kept += [hidden] if index % 4 == 3 else []
        loss = fluid.layers.mean(fluid.layers.square(hidden))
        strategy = DistributedStrategy()
        strategy.forward_recompute, strategy.recompute_checkpoints = recompute, kept
        fleet = Collective()
        fleet.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
        executor, other = fluid.Executor(), fluid.Executor()
        other.run(fleet.startup_program)
        executor.run(loss.block.program, {"x": np.ones((256, 64), "float32")}, [loss])
        return executor._core.nbytes()
