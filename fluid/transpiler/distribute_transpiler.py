"""`DistributeTranspiler`: the programs of a distributed job, created from that of one process.

This is the public interface: arguments are checked here, the work is in
`fluid.transpiler.distribute`. Bugs of release 1.8.5 that are not repeated:
docs/reference_behaviour.md, "Distributed programs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.support.tracebacks import entry_point
from fluid.distributed.job import CollectiveJob, is_distributed
from fluid.distributed.sharding import ShardingPlan
from fluid.framework import Program, default_main_program, default_startup_program
from fluid.transpiler import collective
from fluid.transpiler.distribute.config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
    check_config,
)
from fluid.transpiler.distribute.endpoints import check_rank, parse_endpoints
from fluid.transpiler.distribute.job import Job, make_job
from fluid.transpiler.distribute.nccl2 import transpile_nccl2
from fluid.transpiler.distribute.slicing import VarBlock, slice_variable

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "ServerRuntimeConfig",
    "VarBlock",
    "same_or_split_var",
    "slice_variable",
]

COLLECTIVE_MODES = {
    "grad_allreduce": collective.GradAllReduce,
    "local_sgd": collective.LocalSGD,
}


class DistributeTranspiler:
    """Rewrites a program for a job of many processes, see `transpile`.

    Raises TypeError and ValueError for settings that cannot be, naming the field of `config`.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = check_config(DistributeTranspilerConfig() if config is None else config)
        self._job: Job | None = None

    @entry_point
    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
        **older: object,
    ) -> None:
        """Rewrite `program` and `startup_program`, the default ones by default, in place.

        In mode "pserver", `pservers` has the endpoints of the servers and `trainers` the number of
        trainers; in the others `trainers` has the endpoints of all trainers and `current_endpoint`
        is that of this one. Release 0.13's keywords `slice_var_up` and `split_method`, and
        `workers` for `trainers`, are taken as well.

        Raises TypeError and ValueError for arguments that cannot be, RuntimeError for programs
        that are transpiled already; nothing is rewritten then.
        """
        everybody = self._take_older(older, trainers)
        main = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        _expect_programs(main, startup)
        config = check_config(self.config)
        if config.mode != "collective":
            _expect_new(main, startup)
        if config.mode == "nccl2":
            transpile_nccl2(main, startup, trainer_id, everybody, current_endpoint, config)
        elif config.mode == "collective":
            rewriting = _collective(config)
            rewriting.refuses_jobs = True
            arguments = (trainer_id, everybody, current_endpoint, config.wait_port)
            rewriting.transpile(startup, main, *arguments)
            main.job = CollectiveJob(is_chief=trainer_id == 0)
        else:
            endpoints = parse_endpoints(pservers, "pservers")
            count = _trainer_count(everybody)
            check_rank(trainer_id, count)
            numbers = (trainer_id, endpoints, count, bool(sync_mode))
            self._job = make_job(main, startup, *numbers, config, current_endpoint)

    def _take_older(self, older: Mapping[str, object], trainers: object) -> object:
        """Apply keywords of older releases to the settings; returns the trainers, under either
        name.
        """
        keywords = {"slice_var_up", "split_method", "workers"}
        unknown = sorted(older.keys() - keywords)
        if unknown:
            raise TypeError(f"transpile has no argument {unknown[0]!r}")
        for name in ("slice_var_up", "split_method"):
            if name in older:
                setattr(self.config, name, older[name])
        return older.get("workers", trainers)

    # ---- what the processes run

    @entry_point
    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The program of a trainer: the one that was passed to `transpile`.

        With `wait_port` it waits until every server accepts connections. Raises RuntimeError
        before `transpile`.
        """
        return self._made("get_trainer_program").trainer_program(wait_port)

    @entry_point
    def get_pserver_program(self, endpoint: str) -> Program:
        """A new program, that a server runs. Raises RuntimeError before `transpile`, ValueError
        for an endpoint that is no server's.
        """
        return self._made("get_pserver_program").server_program(endpoint)

    @entry_point
    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The main and the startup program of a server. Raises as `get_pserver_program` does."""
        job = self._made("get_pserver_programs")
        return job.server_program(endpoint), job.server_startup(endpoint)

    @entry_point
    def get_startup_program(
        self,
        endpoint: str,
        pserver_program: Program | None = None,
        startup_program: Program | None = None,
    ) -> Program:
        """The startup program of a server; the other arguments are of older releases.

        Raises as `get_pserver_program` does.
        """
        return self._made("get_startup_program").server_startup(endpoint)

    @property
    def sharding_plan(self) -> ShardingPlan:
        """The placement of parameters. Raises RuntimeError before `transpile`."""
        return self._made("sharding_plan").plan

    @property
    def params_on_trainers(self) -> tuple[str, ...]:
        """The parameters that `config.params_on_servers` assigns to the trainers.

        Raises RuntimeError before `transpile`.
        """
        return tuple(update.param for update in self._made("params_on_trainers").updates.local)

    @property
    def has_distributed_lookup_table(self) -> bool:
        """Whether the program has an embedding with `is_distributed`."""
        return self._made("has_distributed_lookup_table").plan.table is not None

    @property
    def table_name(self) -> str | None:
        """The parameter of that embedding, or None."""
        table = self._made("table_name").plan.table
        return None if table is None else table.name

    def set_server_config(self, server_config: ServerRuntimeConfig | None = None) -> None:
        """Set the threads of the servers, those of the environment for None.

        Raises TypeError for another type, RuntimeError before `transpile`.
        """
        threads = _runtime_config(server_config)
        self._job = replace(self._made("_set_server_config"), threads=threads)

    _set_server_config = set_server_config

    def _made(self, what: str) -> Job:
        """The job; RuntimeError where `transpile` was not called, or for a job without servers."""
        if self._job is None:
            if self.config.mode != "pserver":
                raise RuntimeError(
                    f"{what} is of mode 'pserver'; in mode {self.config.mode!r} run the programs "
                    "that were passed to transpile"
                )
            raise RuntimeError(f"call transpile(trainer_id, pservers=…, trainers=…) before {what}")
        return self._job


def same_or_split_var(p_name: str, var_name: str) -> bool:
    """Whether a name is that of a variable or of one of its blocks.

    >>> same_or_split_var("w.block3", "w"), same_or_split_var("w_moment", "w")
    (True, False)
    """
    return p_name == var_name or p_name.startswith(f"{var_name}.block")


def _collective(config: DistributeTranspilerConfig) -> collective.Collective:
    """The rewriting of a collective mode; ValueError naming the modes there are."""
    if config.collective_mode == "single_process_multi_thread":
        return collective.SingleProcessMultiThread()
    if config.collective_mode not in COLLECTIVE_MODES:
        modes = ", ".join([*COLLECTIVE_MODES, "single_process_multi_thread"])
        raise ValueError(
            f"invalid collective_mode: {config.collective_mode!r}; set config.collective_mode to "
            f"one of {modes}"
        )
    return COLLECTIVE_MODES[config.collective_mode](config.nccl_comm_num)


def _runtime_config(server_config: object) -> ServerRuntimeConfig:
    """The threads of the servers, those of the environment for None; TypeError for another type."""
    runtime_config = ServerRuntimeConfig() if server_config is None else server_config
    if not isinstance(runtime_config, ServerRuntimeConfig):
        kind = type(runtime_config).__name__
        raise TypeError(f"server_config must be a ServerRuntimeConfig, not {kind}")
    return runtime_config


def _trainer_count(trainers: object) -> int:
    """The number of trainers; TypeError for what is no int, ValueError below 1."""
    if not isinstance(trainers, int) or isinstance(trainers, bool):
        raise TypeError(
            "trainers must be the number of trainers in mode 'pserver', not "
            f"{type(trainers).__name__} {trainers!r}; lists of endpoints are of modes 'nccl2' and "
            "'collective'"
        )
    if trainers < 1:
        raise ValueError(f"trainers must be at least 1, but is {trainers}")
    return trainers


def _expect_programs(*programs: object) -> None:
    """TypeError for what is no Program."""
    for program in programs:
        if not isinstance(program, Program):
            raise TypeError(f"transpile takes Programs, not {type(program).__name__}")


def _expect_new(*programs: Program) -> None:
    """RuntimeError for a program that is transpiled already."""
    for program in programs:
        if is_distributed(program.job):
            raise RuntimeError(
                "the program is transpiled already, and a second time would send everything twice; "
                "transpile a program that was built anew, or a clone made before"
            )
