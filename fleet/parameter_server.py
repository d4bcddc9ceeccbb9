"""The fleet of parameter servers: programs by `DistributeTranspiler`, a role for each process.

`incubate.fleet.parameter_server.distribute_transpiler` of release 1.8 and the CPU algorithm of
OpenKS.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.strategies import DistributedStrategy, StrategyFactory, strategy_for
from fluid import io, parameter_server
from fluid.communicator import Communicator
from fluid.distributed.job import DerivedJob, is_distributed
from fluid.executor import Executor
from fluid.framework import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_of,
)
from fluid.optimizer import Optimizer
from fluid.transpiler.distribute.config import DistributedMode, DistributeTranspilerConfig
from fluid.transpiler.distribute.endpoints import wait_for_endpoints
from fluid.transpiler.distribute_transpiler import DistributeTranspiler

__all__ = ["DistributedTranspiler", "TranspilerOptimizer", "fleet", "server_strategy"]


class DistributedTranspiler(Fleet):
    """A fleet of workers, which compute gradients, and servers, which hold the parameters."""

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self._transpile_config: DistributedStrategy | None = None
        self._transpiler: DistributeTranspiler | None = None
        self._communicator: Communicator | None = None
        self._opt_info: dict[str, Any] = {}

    # ---- a worker

    def init_worker(self) -> None:
        """Wait until every server accepts connections, then start the communicator, if any.

        With `wait_port` False in the settings of the program nothing is awaited.

        The user runs the startup program, before or after. Raises ValueError before `minimize`,
        TimeoutError naming the servers that did not answer within the `rpc_deadline` of the
        strategy's runtime settings, by default FLAGS_rpc_deadline.
        """
        program, strategy = self._minimized()
        if strategy.get_program_config().wait_port:
            seconds = strategy.get_trainer_runtime_config().deadline
            wait_for_endpoints(self._role.get_pserver_endpoints(), seconds)
        if strategy.mode is DistributedMode.SYNC or self._communicator is not None:
            return
        self._communicator = self._new_communicator(program, strategy)
        self._communicator.start()

    def _new_communicator(self, program: Program, strategy: DistributedStrategy) -> Communicator:
        """The communicator of an asynchronous mode."""
        flags = strategy.get_trainer_runtime_config().get_communicator_flags()
        if strategy.mode is not DistributedMode.GEO:
            return Communicator(program, strategy.mode, None, flags)
        steps = strategy.get_program_config().geo_sgd_need_push_nums
        exchange = {"trainers": self.worker_num(), "geo_need_push_nums": steps}
        return Communicator(program, strategy.mode, exchange, flags)

    def stop_worker(self) -> None:
        """Notify the servers that this worker has completed, and close the fleet's executor."""
        if self._communicator is not None:
            self._communicator.stop()
            self._communicator = None
        executor = self._own_executor()
        if self.main_program is not None:
            parameter_server.complete(self.main_program, executor)
        self._role.finalize()
        executor.close()

    # ---- a server

    def init_server(self, model_dir: str | os.PathLike[str] | None = None) -> None:
        """Run the startup program of this server, then load what `save_persistables` saved.

        Raises ValueError before `minimize`, and if `model_dir` is not a folder.
        """
        if self.startup_program is None:
            raise _before_minimize("startup_program")
        if model_dir is not None and not Path(model_dir).is_dir():
            raise ValueError(f"There is no directory named {str(model_dir)!r}")
        executor = self._own_executor()
        executor.run(self.startup_program)
        if model_dir is not None:
            io.load_persistables(executor, model_dir, self.main_program)

    def run_server(self) -> None:
        """Serve until every worker has completed. Raises ValueError before `minimize`."""
        if self.main_program is None:
            raise _before_minimize("main_program")
        self._own_executor().run(self.main_program)

    # ---- the optimizer

    def distributed_optimizer(self, optimizer: Optimizer, strategy: Any = None) -> Any:
        """Wrap an optimizer, so that its `minimize` builds the programs of this process.

        `strategy` is a strategy of `StrategyFactory`, by default synchronous, or a
        DistributeTranspilerConfig. Raises ValueError if `optimizer` is not an Optimizer and before
        `init`, TypeError for another strategy.
        """
        _expect_optimizer(optimizer)
        if not self._is_initialized:
            raise ValueError(
                "use fleet.init(role) to initialize the role of current node before "
                "optimizer.minimize(loss)"
            )
        self._optimizer = self._wrap(optimizer, strategy)
        return self._optimizer

    def _wrap(self, optimizer: Optimizer, strategy: Any) -> TranspilerOptimizer:
        return TranspilerOptimizer(optimizer, strategy, self)

    def transpile_for(
        self, config: DistributedStrategy | DistributeTranspilerConfig, main: Program,
        startup: Program, params_on_servers: Any = None,
    ) -> None:  # fmt: skip
        """Build the programs of this process from the single-process programs.

        `params_on_servers`, unless None, replaces that field of the settings.
        """
        strategy = (
            strategy_for(config) if isinstance(config, DistributeTranspilerConfig) else config
        )
        settings = strategy.transpiler_config()
        if params_on_servers is not None:
            settings.params_on_servers = params_on_servers
        self._transpile_config = strategy
        self._origin_program = main.clone()
        self._transpiler = transpiler = DistributeTranspiler(settings)
        numbers: dict[str, Any] = {
            "pservers": self.server_endpoints(to_string=True),
            "trainers": self.worker_num(),
            "sync_mode": settings.sync_mode,
        }
        if self.is_worker():
            transpiler.transpile(self.worker_index(), main, startup_program=startup, **numbers)
            self.main_program = transpiler.get_trainer_program(settings.wait_port)
            self.startup_program = startup
        else:
            own = self._role.get_pserver_endpoints()[self.server_index()]
            copies = main.clone(), startup.clone()
            transpiler.transpile(
                0, copies[0], startup_program=copies[1], current_endpoint=own, **numbers
            )
            transpiler.set_server_config(strategy.get_server_runtime_config())
            self.main_program, self.startup_program = transpiler.get_pserver_programs(own)

    def params_on_trainers(self) -> tuple[str, ...]:
        """The parameters that workers update themselves. Raises ValueError before `minimize`."""
        if self._transpiler is None:
            raise _before_minimize("main_program")
        return self._transpiler.params_on_trainers

    def _minimized(self) -> tuple[Program, DistributedStrategy]:
        if self.main_program is None or self._transpile_config is None:
            raise _before_minimize("main_program")
        return self.main_program, self._transpile_config

    # ---- files

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: list[str],
        target_vars: list[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the program pruned to `target_vars`, and its parameters from the servers.

        With `main_program` that program is saved, with the parameters of this process. Raises
        TypeError for a ParallelExecutor, a CompiledProgram or if `executor` is not an Executor,
        ValueError before `minimize`.
        """
        _expect_executor(executor, "save_inference_model")
        _expect_plain(main_program, "save_inference_model")
        ends = dirname, feeded_var_names, target_vars, executor
        if main_program is not None:
            io.save_inference_model(*ends, main_program, None, None, export_for_deployment)
            return
        distributed, _ = self._minimized()
        origin = self._origin_program
        with warnings.catch_warnings():  # the parameters come from the servers, below
            warnings.filterwarnings("ignore", "program_only: the parameters are not saved")
            io.save_inference_model(*ends, origin, None, None, True, program_only=True)
        saved = Program.parse_from_string((Path(dirname) / "__model__").read_bytes())
        saved.job = DerivedJob(distributed)
        io.save_persistables(executor, dirname, saved)

    def save_persistables(
        self,
        executor: Executor,
        dirname: str,
        main_program: Program | None = None,
        filename: str | None = None,
    ) -> None:
        """Save every persistable variable of a distributed program, with sharded ones joined.

        Each is a file of its name in `dirname`, or all are in the one `filename`. Raises TypeError
        for a ParallelExecutor, a CompiledProgram or if `executor` is not an Executor, ValueError
        for a program that is not distributed.
        """
        _expect_executor(executor, "save_persistables")
        _expect_plain(main_program, "save_persistables")
        program = self._minimized()[0] if main_program is None else main_program
        if not is_distributed(program.job):
            raise ValueError(
                "main_program is for local, may not use fleet.save_persistables: use "
                "fluid.io.save_persistables for a program of one process"
            )
        io.save_persistables(executor, dirname, program, filename)

    def _own_executor(self) -> Executor:
        """The executor of this fleet. Raises RuntimeError before `init`."""
        if self._executor is None:
            raise RuntimeError("this process has no role yet: call fleet.init(role_maker) first")
        return self._executor

    def set_opt_info(self, opt_info: dict[str, Any]) -> None:
        """Store an optimizer's settings of the run."""
        self._opt_info = opt_info

    def _transpile(self, config: DistributedStrategy | DistributeTranspilerConfig) -> None:
        """Build the programs of this process from the default programs; TypeError otherwise."""
        _expect_strategy(config, self.mode)
        self.transpile_for(config, default_main_program(), default_startup_program())

    _set_opt_info = set_opt_info


class TranspilerOptimizer(DistributedOptimizer):
    """Wraps an optimizer of a fleet with parameter servers, by default that of this module.

    `strategy` is one of `StrategyFactory`, by default synchronous, or a DistributeTranspilerConfig.
    Raises TypeError for another strategy, and if `optimizer` is not an Optimizer.
    """

    def __init__(
        self, optimizer: Optimizer, strategy: Any = None,
        algorithm: DistributedTranspiler | None = None,
    ) -> None:  # fmt: skip
        super().__init__(optimizer, strategy)
        self._fleet = fleet if algorithm is None else algorithm
        self._strategy = server_strategy(strategy, self._fleet.mode)
        self.opt_info = self._debug_options()

    def _debug_options(self) -> dict[str, Any]:
        """A trainer's dump settings; empty for a plain config."""
        if not isinstance(self._strategy, DistributedStrategy):
            return {}
        options = self._strategy.get_debug_opt()
        if self._fleet.is_initialized:
            options |= {
                "mpi_rank": self._fleet.worker_index(),
                "mpi_size": self._fleet.worker_num(),
            }
        options |= {"trainer": "MultiTrainer", "device_worker": "Hogwild"}
        self._fleet.set_opt_info(options)
        return options

    # Paddle's order of arguments, which differs from its other optimizers'.
    def minimize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        loss: Variable,
        scopes: Any = None,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], list[Any]]:
        """Append gradient and update ops to the program of `loss`, then build that of this process.

        `scopes` is not used. Returns the update ops and (parameter, gradient) pairs. Raises
        TypeError for a list of losses or of startup programs, RuntimeError before `init`.
        """
        _expect_single(loss, startup_program)
        main = program_of(loss)
        startup = default_startup_program() if startup_program is None else startup_program
        result = self._optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        self._fleet.transpile_for(self._strategy, main, startup)
        main.fleet_opt = self.opt_info
        return result


def server_strategy(given: Any, mode: Mode) -> DistributedStrategy | DistributeTranspilerConfig:
    """Return the strategy of a fleet in `mode`; synchronous for None.

    Raises TypeError if it is neither one of `StrategyFactory` nor a DistributeTranspilerConfig.
    """
    if given is None:
        return StrategyFactory.create_sync_strategy()
    _expect_strategy(given, mode)
    return given


def _expect_strategy(given: object, mode: Mode) -> None:
    if not isinstance(given, DistributedStrategy | DistributeTranspilerConfig):
        raise TypeError(
            f"In {mode!r} mode, strategy must be an instance of DistributeTranspilerConfig, "
            "SyncStrategy, HalfAsyncStrategy, AsyncStrategy, or GeoStrategy, not "
            f"{type(given).__name__}"
        )


def _expect_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"optimizer must be an instance of Optimizer, not {type(optimizer).__name__}"
        )


def _expect_single(loss: Any, startup_program: Any) -> None:
    if not isinstance(loss, Variable):
        kind = type(loss).__name__
        raise TypeError(f"minimize takes one loss, a Variable, and can not accept a {kind}")
    if startup_program is not None and not isinstance(startup_program, Program):
        kind = type(startup_program).__name__
        raise TypeError(f"minimize takes one startup program, and can not accept a {kind}")


def _expect_executor(executor: Any, where: str) -> None:
    if not isinstance(executor, Executor):
        kind = type(executor).__name__
        raise TypeError(
            f"in fleet.{where}() function, executor must be as Executor type, {kind} is not allowed"
        )


def _expect_plain(program: Any, where: str) -> None:
    if program is not None and not isinstance(program, Program):
        kind = type(program).__name__
        raise TypeError(
            f"in fleet.{where}() function, main_program must be as Program type, {kind} is not "
            "allowed"
        )


def _before_minimize(what: str) -> ValueError:
    return ValueError(f"{what} is None, need invoke DistributedOptimizer.minimize first")


fleet = DistributedTranspiler()
"""The fleet of this process, as scripts of release 1.8 import it."""
