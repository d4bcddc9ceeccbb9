"""A transpiled job with servers: the arguments, the plan, and the programs derived from them.

Server programs are created from copies of the original programs at each request, so the order of
requests does not matter, and no user program is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fluid.framework import Program
from fluid.transpiler.distribute.config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)
from fluid.transpiler.distribute.endpoints import wait_for_endpoints
from fluid.transpiler.distribute.geo import rewrite_geo_trainer
from fluid.transpiler.distribute.placement import VarsDistributed, make_placement
from fluid.transpiler.distribute.plan import ShardingPlan, make_plan, schedule_counters
from fluid.transpiler.distribute.server import make_server
from fluid.transpiler.distribute.server_settings import server_settings
from fluid.transpiler.distribute.server_startup import make_server_startup
from fluid.transpiler.distribute.tables import distributed_table
from fluid.transpiler.distribute.trainer import rewrite_trainer
from fluid.transpiler.distribute.trainer_startup import rewrite_trainer_startup
from fluid.transpiler.distribute.updates import Updates, divide_updates, parameter, read_updates

__all__ = ["Job", "make_job"]


@dataclass(frozen=True)
class Job:
    """The programs passed to `transpile`, copies of the originals, the plan and
    the server threads.
    """

    main: Program
    origin: Program
    origin_startup: Program
    updates: Updates
    plan: ShardingPlan
    placement: VarsDistributed
    settings: dict[str, Any]
    counters: list[str]
    """The counters of the learning-rate schedule."""
    threads: ServerRuntimeConfig = field(default_factory=ServerRuntimeConfig)

    def trainer_program(self, wait_port: bool) -> Program:
        """The program of the trainer, once the servers answer if `wait_port`."""
        if wait_port:
            wait_for_endpoints(self.plan.endpoints)
        return self.main

    def server_program(self, endpoint: str) -> Program:
        """The main program of a server; ValueError for an endpoint that is no server's."""
        self._expect_server(endpoint)
        program = make_server(self.origin, self.updates, self.plan, endpoint, self.threads)
        return self._marked(program, endpoint)

    def server_startup(self, endpoint: str) -> Program:
        """The startup program of a server; ValueError for an endpoint that is no server's."""
        server = self.server_program(endpoint)
        program = make_server_startup(self.origin_startup, server, self.plan, endpoint)
        return self._marked(program, endpoint)

    def _marked(self, program: Program, endpoint: str) -> Program:
        program.random_seed = self.origin.random_seed
        self.mark(program, endpoint)
        return program

    def mark(self, program: Program, endpoint: str) -> None:
        """Annotate a program with the information needed to save, load and run it in a job."""
        program._is_distributed = True
        program._endpoints = list(self.plan.endpoints)
        program._ps_endpoint = endpoint
        table = self.plan.table
        program._distributed_lookup_table = None if table is None else table.name
        program._parameters_on_pservers = self.placement
        program._sharding_plan = self.plan
        program._schedule_counters = [] if self.plan.mode is DistributedMode.GEO else self.counters
        program._server_settings = self.settings

    def _expect_server(self, endpoint: str) -> None:
        if endpoint not in self.plan.endpoints:
            names = ", ".join(self.plan.endpoints)
            raise ValueError(f"{endpoint!r} is the endpoint of no server; there are: {names}")


def make_job(
    main: Program,
    startup: Program,
    trainer_id: int,
    endpoints: Sequence[str],
    trainers: int,
    sync_mode: bool,
    config: DistributeTranspilerConfig,
    current_endpoint: str,
) -> Job:
    """Plan a job and rewrite the programs for one trainer of it.

    Raises ValueError and RuntimeError for programs that cannot be distributed; nothing is rewritten
    then.
    """
    synchronous = _is_synchronous(sync_mode, config)
    origin, origin_startup = main.clone(), startup.clone()
    updates = _divided(origin, read_updates(origin, synchronous), endpoints, config)
    plan = make_plan(origin, updates, endpoints, trainers, synchronous, config)
    placement = make_placement(origin, updates, plan)
    settings = server_settings(config)
    job = Job(
        main,
        origin,
        origin_startup,
        updates,
        plan,
        placement,
        settings,
        [*schedule_counters(origin, updates)],
    )
    trial = main.clone(), startup.clone()
    for programs in (trial, (main, startup)):
        _rewrite(job, *programs, trainer_id)
    for program in (main, startup):
        job.mark(program, current_endpoint)
        program._geo_steps = config.geo_sgd_need_push_nums
        program._is_chief = trainer_id == 0
    return job


def _divided(
    program: Program,
    updates: Updates,
    endpoints: Sequence[str],
    config: DistributeTranspilerConfig,
) -> Updates:
    """The updates, those of parameters that `params_on_servers` leaves out on the trainers.

    Raises ValueError for GEO, where trainers update everything, and where the table with
    `is_distributed` is left out.
    """
    chosen = config.params_on_servers
    if chosen is None:
        return updates
    if config.geo_sgd_mode:
        raise ValueError("params_on_servers cannot be used with geo_sgd_mode: use another mode")
    names = {update.param for update in updates.updates}
    if callable(chosen):
        chosen = {name for name in names if chosen(parameter(program, name))}
    table = distributed_table(program, endpoints)
    if table is not None and table.name not in chosen:
        raise ValueError(
            f"table {table.name!r} has is_distributed=True, so its rows are on servers: "
            "params_on_servers must include it"
        )
    return divide_updates(program, updates, frozenset(chosen))


def _rewrite(job: Job, main: Program, startup: Program, trainer_id: int) -> None:
    """Rewrite programs for a trainer."""
    if job.plan.mode is DistributedMode.GEO:
        rewrite_geo_trainer(main, job.plan, trainer_id)
    else:
        rewrite_trainer(main, job.updates, job.plan, trainer_id)
    rewrite_trainer_startup(startup, main, job.origin, job.plan, trainer_id)


def _is_synchronous(sync_mode: bool, config: DistributeTranspilerConfig) -> bool:
    """Whether steps end with barriers: unless the argument or the settings say otherwise.

    Raises ValueError for delay compensation in synchronous steps, which have no delay.
    """
    synchronous = sync_mode and config.sync_mode and not config.geo_sgd_mode
    if config.enable_dc_asgd and (synchronous or config.completely_not_async):
        raise ValueError(
            "config.enable_dc_asgd compensates the delay of asynchronous trainers; pass "
            "sync_mode=False, or set enable_dc_asgd to False"
        )
    return synchronous
