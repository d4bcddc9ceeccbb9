"""A rank of a job whose processes were started apart: it trains as its arguments say.

    ranks.py FOLDER JOB...

A JOB is `mode/network`: `nccl2`, `hierarchical`, `grad_allreduce` or `local_sgd`. The launcher's
PADDLE_* variables say which rank this is. FOLDER gets `rank<i>.npz`: for each job its losses, under
`JOB:loss`, and its parameters, under `JOB:name`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from fluid.data_parallel.rewrite import synchronize_batch_norms
from runtime.collective import rings_of
from tests.fluid.data_parallel.nets import NETS

STEPS, ROWS, RINGS = 5, 12, 2
OPTIMIZERS = {
    "digits_mlp": lambda: fluid.optimizer.Momentum(0.05, 0.9),
    "lenet_bn": lambda: fluid.optimizer.Momentum(0.05, 0.9),
    "resnet_cifar8": lambda: fluid.optimizer.SGD(0.05),
    "ctr_wide_deep": lambda: fluid.optimizer.Adagrad(0.05),
}


class Training:
    """A network with its optimizer in programs of its own, and the batches it is trained on."""

    def __init__(self, network: str, seed: int) -> None:
        make, batch = NETS[network]
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.startup.random_seed = seed
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = make()
            OPTIMIZERS[network]().minimize(self.loss)
        draw = np.random.default_rng(2)
        self.batches = [batch(draw, ROWS) for _ in range(STEPS)]
        self.executor = fluid.Executor()

    def step(self, feed: Any) -> Any:
        (loss,) = self.executor.run(self.main, feed, [self.loss], scope=self.scope)
        return loss

    def parameters(self) -> dict[str, Any]:
        names = [parameter.name for parameter in self.main.all_parameters()]
        return {name: np.array(self.scope.find_var(name).get_tensor()) for name in names}


def share(batch: Any, rank: int, ranks: int) -> dict[str, Any]:
    """The rows of one rank."""
    return {name: np.split(rows, ranks)[rank] for name, rows in batch.items()}


def transpile(training: Training, mode: str, rank: int, endpoints: list[str]) -> None:
    config = fluid.DistributeTranspilerConfig()
    config.nccl_comm_num = RINGS
    config.mode = "nccl2" if mode in ("nccl2", "hierarchical") else "collective"
    if mode == "hierarchical":
        config.use_hierarchical_allreduce = True
        config.hierarchical_allreduce_inter_nranks = 2
    elif config.mode == "collective":
        config.collective_mode = mode
    fluid.DistributeTranspiler(config).transpile(
        rank,
        program=training.main,
        startup_program=training.startup,
        trainers=",".join(endpoints),
        current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"],
    )


def train(job: str, rank: int, endpoints: list[str]) -> dict[str, Any]:
    """What one rank has after a job: its losses and its parameters."""
    mode, network = job.split("/")
    training = Training(network, seed=rank + 7)  # only what rank 0 begins with counts
    if mode == "grad_allreduce":
        synchronize_batch_norms(training.main)
    transpile(training, mode, rank, endpoints)
    training.executor.run(training.startup, scope=training.scope)
    step = training.step
    rings = rings_of(training.scope)
    if mode in ("nccl2", "hierarchical"):
        step, rings = parallel_step(training, rank, len(endpoints))
    losses = [step(share(batch, rank, len(endpoints))) for batch in training.batches]
    result = {"loss": np.concatenate(losses)} | training.parameters()
    if len(endpoints) > 1:
        result["issued"] = np.array([rings._ring(i).member.record.count(i) for i in range(RINGS)])
    return {f"{job}:{name}": value for name, value in result.items()}


def parallel_step(training: Training, rank: int, ranks: int) -> tuple[Any, Any]:
    """A function that runs a step, and the rings that it uses."""
    strategy = fluid.BuildStrategy()
    strategy.sync_batch_norm = True
    runner = fluid.ParallelExecutor(
        use_cuda=False,
        loss_name=training.loss.name,
        main_program=training.main,
        build_strategy=strategy,
        num_trainers=ranks,
        trainer_id=rank,
        scope=training.scope,
    )
    devices = runner._program.runner(training.scope, fluid.CPUPlace()).devices
    rings = devices.pool().rings if ranks > 1 else None
    return lambda feed: runner.run([training.loss.name], feed)[0], rings


def main() -> None:
    folder, *jobs = sys.argv[1:]
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    results: dict[str, Any] = {}
    for job in jobs:
        results |= train(job, rank, endpoints)
    np.savez(Path(folder) / f"rank{rank}.npz", **results)


if __name__ == "__main__":
    main()
