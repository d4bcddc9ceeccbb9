"""Jobs with all-reduce between workers and tables on servers: roles as threads of one process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

import fleet
import fluid
from fleet.strategies import StrategyFactory
from fluid.parameter_server.saving import merged_values
from tests.fluid.parameter_server import nets, role, threads
from tests.golden import zoo


def made(job: dict[str, Any], kind: int, number: int, **fields: Any) -> Any:
    """The algorithm of a role after `minimize`, the loss and what draws a feed."""
    algorithm = fleet.GPUDistributedAlgorithm()
    algorithm.init(fleet.UserDefinedRoleMaker(number, kind, job["trainers"], job["endpoints"]))
    strategy = fleet.GPUStrategy(dist_config=[fleet.TablesOnServers(None, no_waiting())]).strategy
    for name, value in fields.items():
        setattr(strategy, name, value)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, _, draw = nets.MODELS[job["model"]](fluid)
        optimizer = zoo.optimizer(fluid, job["optimizer"])
        algorithm.distributed_optimizer(optimizer, strategy).minimize(loss, startup)
    return algorithm, loss, draw


def no_waiting() -> Any:
    """A synchronous strategy by which `minimize` does not wait for the servers."""
    strategy = StrategyFactory.create_sync_strategy()
    strategy.set_program_config({"wait_port": False})
    return strategy


class Role(threading.Thread):
    """One role of a job, in a thread; `error` is what it raised."""

    def __init__(self, job: dict[str, Any], kind: int, number: int, **fields: Any) -> None:
        super().__init__(daemon=True)
        self.job, self.kind, self.number, self.fields = job, kind, number, fields
        self.error: Exception | None = None
        self.found: dict[str, Any] = {}

    def run(self) -> None:
        try:
            with threads.BUILDING:
                parts = made(self.job, self.kind, self.number, **self.fields)
            if self.kind == fleet.Role.SERVER:
                self.serve(parts[0])
            else:
                self.train(*parts)
        except Exception as error:
            self.error = error
            raise

    def serve(self, algorithm: Any) -> None:
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(algorithm.startup_program, scope=scope)
        executor.run(algorithm.main_program, scope=scope)

    def train(self, algorithm: Any, loss: Any, draw: Any) -> None:
        executor, scope = fluid.Executor(), fluid.Scope()
        algorithm.init_worker()
        executor.run(algorithm.startup_program, scope=scope)
        losses = []
        for batch in role.batches(self.job, draw):
            fed = role.fed(share(batch, self.number, self.job["trainers"]))
            losses += executor.run(algorithm.main_program, fed, [loss], scope=scope)
        program = algorithm.main_program
        remote = {n: v for n, v in merged_values(program).items() if "moment" not in n}
        self.found = {**role.parameters(program, scope), **remote, "losses": np.ravel(losses)}
        self.found.pop(program._distributed_lookup_table, None)  # a worker never has its rows
        algorithm.stop_worker()
        executor.close()


def share(batch: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    """The rows of one of `count` workers."""
    return {name: np.array_split(rows, count)[number] for name, rows in batch.items()}


def trained(job: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Run a job to its end; losses and parameters of each worker."""
    kinds = fleet.Role.SERVER, fleet.Role.WORKER
    counts = len(job["endpoints"]), job["trainers"]
    roles = [Role(job, kind, n, **fields) for kind, c in zip(kinds, counts, strict=True)
             for n in range(c)]  # fmt: skip
    for each in roles:
        each.start()
    for each in roles[::-1]:
        each.join(threads.SECONDS)
        if each.error is not None:
            raise each.error
    assert not any(each.is_alive() for each in roles), "a role still waits"
    return [each.found for each in roles if each.kind == fleet.Role.WORKER]


def make_job(model: str, optimizer: str, endpoints: list[str], **more: Any) -> dict[str, Any]:
    """The description of a job with two workers."""
    return {
        "model": model, "optimizer": optimizer, "trainers": 2, "endpoints": endpoints,
        "rows": 6, "steps": 8, "out": str(Path()), **more,
    }  # fmt: skip
