"""A transpiled job with servers: the arguments, the plan, and the programs derived from them.

Server programs are created from copies of the original programs at each request, so the order of
requests does not matter, and no user program is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from compiler.support.dataclass import dataclass
from fluid.distributed.job import ServerJob, TrainerJob
from fluid.distributed.placement import VarsDistributed
from fluid.distributed.sharding import DistributedMode, ShardingPlan
from fluid.framework import Program
from fluid.transpiler.distribute.config import DistributeTranspilerConfig, ServerRuntimeConfig
from fluid.transpiler.distribute.endpoints import wait_for_endpoints
from fluid.transpiler.distribute.geo import rewrite_geo_trainer
from fluid.transpiler.distribute.placement import make_placement
from fluid.transpiler.distribute.plan import make_plan, schedule_counters
from fluid.transpiler.distribute.server import make_server
from fluid.transpiler.distribute.server_builder import InitialValue
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
    settings: Mapping[str, str | float]
    counters: tuple[str, ...]
    """The counters of the learning-rate schedule."""
    threads: ServerRuntimeConfig = field(default_factory=ServerRuntimeConfig)

    def trainer_program(self, wait_port: bool) -> Program:
        """The program of the trainer, once the servers answer if `wait_port`."""
        if wait_port:
            wait_for_endpoints(self.plan.endpoints)
        return self.main

    def server_program(self, endpoint: str) -> Program:
        """The main program of a server; ValueError for an endpoint that is no server's."""
        return self._server(endpoint)[0]

    def server_startup(self, endpoint: str) -> Program:
        """The startup program of a server; ValueError for an endpoint that is no server's."""
        server, initial = self._server(endpoint)
        startup = make_server_startup(self.origin_startup, server, initial, self.plan, endpoint)
        startup.job, startup.random_seed = server.job, server.random_seed
        return startup

    def _server(self, endpoint: str) -> tuple[Program, Mapping[str, InitialValue]]:
        """The main program of a server, and the initial values of its variables."""
        self._expect_server(endpoint)
        program, initial = make_server(self.origin, self.updates, self.plan, endpoint, self.threads)
        program.random_seed = self.origin.random_seed
        program.job = ServerJob(
            self.plan, self.placement, endpoint, self._advanced_counters(), self.settings
        )
        return program, initial

    def trainer_job(self, endpoint: str, is_chief: bool, geo_steps: int) -> TrainerJob:
        """The job as the programs of a trainer know it."""
        counters = self._advanced_counters()
        known = self.plan, self.placement, endpoint, counters, self.settings
        return TrainerJob(*known, is_chief, geo_steps)

    def _advanced_counters(self) -> tuple[str, ...]:
        """The counters of the schedule that servers advance: none in GEO."""
        return () if self.plan.mode is DistributedMode.GEO else self.counters

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
    updates = read_updates(origin, synchronous, config.geo_sgd_mode)
    updates = _divided(origin, updates, endpoints, config)
    plan = make_plan(origin, updates, endpoints, trainers, synchronous, config)
    placement = make_placement(origin, updates, plan)
    settings = server_settings(config.server_fields())
    job = Job(
        main,
        origin,
        origin_startup,
        updates,
        plan,
        placement,
        settings,
        schedule_counters(origin, updates),
    )
    trial = main.clone(), startup.clone()
    for programs in (trial, (main, startup)):
        _rewrite(job, *programs, trainer_id)
    steps = config.geo_sgd_need_push_nums
    main.job = startup.job = job.trainer_job(current_endpoint, trainer_id == 0, steps)
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
