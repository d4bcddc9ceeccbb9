"""Small programs for fleets, and endpoints that nobody listens at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid

ROLE_VARIABLES = (
    "PADDLE_PSERVERS_IP_PORT_LIST PADDLE_TRAINERS_NUM PADDLE_TRAINER_ENDPOINTS TRAINING_ROLE "
    "PADDLE_TRAINER_ID PADDLE_PSERVER_ID POD_IP PADDLE_PORT PADDLE_TRAINING_ROLE "
    "PADDLE_CURRENT_ENDPOINT PADDLE_GLOO_ENDPOINT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE "
    "PMI_RANK SLURM_PROCID SLURM_JOB_NODELIST"
).split()
"""Variables by which launchers say who a process is."""


def set_all(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Set environment variables for one test."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def mlp() -> Any:
    """The quick-start network of OpenKS, 32-128-128-2; its loss."""
    x = fluid.layers.data("x", [32])
    y = fluid.layers.data("y", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(x, 128, act="tanh"), 128, act="tanh")
    chances = fluid.layers.fc(hidden, 2, act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(chances, y))


def regression() -> Any:
    """One layer; its loss."""
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))


def batches(steps: int, size: int = 8) -> Iterator[dict[str, Any]]:
    """Batches for `mlp`, the same at every call."""
    random = np.random.RandomState(0)
    for _ in range(steps):
        x = random.rand(size, 32).astype("float32")
        yield {"x": x, "y": (x.sum(1, keepdims=True) > 16).astype("int64")}


def share(batch: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    """The rows of one of `count` workers."""
    return {name: np.split(rows, count)[number] for name, rows in batch.items()}


@contextmanager
def fresh() -> Iterator[tuple[Any, Any]]:
    """New default programs with a fixed seed, and an empty scope."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with ExitStack() as stack:
        stack.enter_context(fluid.program_guard(main, startup))
        stack.enter_context(fluid.unique_name.guard())
        stack.enter_context(fluid.scope_guard(fluid.Scope()))
        yield main, startup


def leave(
    algorithm: Any, executor: Any, out: str, loss: Any, losses: list[float], feeds: list[str]
) -> None:
    """Let worker 0 write the mean losses and what is saved into `out`, then end this worker."""
    total = [0.0] * len(losses)
    algorithm.all_reduce_worker(losses, total)
    algorithm.barrier_workers()
    if algorithm.is_first_worker():
        mean = [each / algorithm.worker_num() for each in total]
        Path(out, "losses.json").write_text(json.dumps(mean))
        algorithm.save_persistables(executor, f"{out}/state")
        algorithm.save_inference_model(executor, f"{out}/model", feeds, [loss])
    algorithm.barrier_workers()
    algorithm.stop_worker()
