"""`CollectiveOptimizer`: `minimize` that distributes a program by collectives."""

from __future__ import annotations

import logging
from copy import copy
from typing import Any, ClassVar, NoReturn, Protocol

from compiler.support.settings.paddle import FLAGS_sync_nccl_allreduce
from fleet.algorithm import DistributedOptimizer
from fleet.collective_strategy import DistributedStrategy
from fluid.compiler import CompiledProgram
from fluid.contrib.mixed_precision import decorate
from fluid.framework import Program, Variable, default_startup_program, program_of
from fluid.optimizer import RecomputeOptimizer
from fluid.recording.narrowing import is_list
from fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = ["CollectiveOptimizer"]

LOG = logging.getLogger(__name__)
COLLECTIVE_MODES = ("local_sgd", "grad_allreduce")


class Workers(Protocol):
    """The fleet interface that an optimizer requires."""

    def worker_endpoints(self, to_string: bool = False) -> Any:
        """The workers' endpoints."""

    def worker_index(self) -> int:
        """This worker's number."""
        ...

    def worker_num(self) -> int:
        """The number of workers."""
        ...

    def set_programs(
        self, startup: Program, origin: Program, transpiled: Program, main: Any
    ) -> None:
        """Store the programs that the optimizer built."""


class CollectiveOptimizer(DistributedOptimizer):
    """Wraps an optimizer of a collective fleet, by default that of `fleet.collective`.

    `strategy` is copied; without one, its defaults apply. Raises TypeError if `optimizer` or
    `strategy` has another type, ValueError if `recompute_checkpoints` is not a list.
    """

    default_fleet: ClassVar[Any] = None

    def __init__(
        self, optimizer: Any, strategy: DistributedStrategy | None = None,
        algorithm: Workers | None = None,
    ) -> None:  # fmt: skip
        settings = _checked(strategy)
        own = copy(settings)
        own.exec_strategy = copy(settings.exec_strategy)
        super().__init__(optimizer, own)
        self._fleet: Workers = self.default_fleet if algorithm is None else algorithm
        self._loss: Variable | None = None
        self.print_config = False

    # ---- minimize

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], list[Any]]:
        """Append gradient and update ops to the program of `loss`, then distribute it.

        Recomputation and mixed precision wrap the optimizer first if the strategy enables them.
        Returns the update ops and (parameter, gradient) pairs. Raises ValueError for an optimizer
        that is already wrapped and for recomputation without checkpoints, AssertionError for
        settings that exclude each other, RuntimeError before `init`.
        """
        optimizer = self._wrapped()
        main = program_of(loss)
        startup = default_startup_program() if startup_program is None else startup_program
        self._loss = loss
        self._check_collective_mode(main, optimizer, self._strategy)
        result = optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        origin = main.clone(for_test=False)
        compiled = self._try_to_compile(startup, main)
        self._fleet.set_programs(startup, origin, main, compiled)
        return result

    def _wrapped(self) -> Any:
        """The optimizer with the recomputation and mixed precision of the strategy."""
        optimizer, strategy = self._optimizer, self._strategy
        kind = type(optimizer).__name__
        if strategy.forward_recompute:
            if not strategy.recompute_checkpoints:
                raise ValueError(
                    "please set strategy.recompute_checkpoints when set strategy.forward_recompute "
                    "as True"
                )
            if kind in ("RecomputeOptimizer", "OptimizerWithMixedPrecision"):
                self.raiseOptimizeError("forward_recompute", kind)
            optimizer = RecomputeOptimizer(optimizer)
            optimizer.set_checkpoints(strategy.recompute_checkpoints)
        if strategy.use_amp:
            if kind in ("OptimizerWithMixedPrecision", "DGCMomentumOptimizer"):
                self.raiseOptimizeError("mixed_precision", kind)
            scale = float(strategy.amp_loss_scaling)
            optimizer = decorate(optimizer, init_loss_scaling=scale, use_dynamic_loss_scaling=True)
        return optimizer

    def raiseOptimizeError(self, strategy_name: str, optimize_name: str) -> NoReturn:
        """Raise ValueError: the strategy enables a feature that the optimizer already has."""
        raise ValueError(
            f"can not use {optimize_name} when you set DistStrategy.{strategy_name} as True"
        )

    # ---- settings that exclude each other

    def _check_collective_mode(
        self, main_program: Program, optimizer: Any, strategy: DistributedStrategy
    ) -> None:
        """Derive the mode. Raises AssertionError for settings that exclude each other."""
        kind = _innermost(optimizer)
        dgc = kind.startswith("DGCMomentum") or getattr(main_program, "_enable_dgc", False)
        lamb = kind.startswith("Lamb") or getattr(main_program, "_use_lamb", False)
        if strategy.use_local_sgd:
            strategy.mode, strategy.collective_mode = "collective", "local_sgd"
            self._check_condition(
                "use_local_sgd", use_dgc=dgc, use_dist_fc=strategy.use_dist_fc, use_lamb=lamb
            )
        if strategy.use_dist_fc:
            self._check_condition("use_dist_fc", use_dgc=dgc, use_lamb=lamb)
            if strategy.dist_fc_config is None:
                raise AssertionError("DistributedStrategy.dist_fc_config should be set")
        if strategy.tests_grad_allreduce:
            strategy.mode, strategy.collective_mode = "collective", "grad_allreduce"
            self._check_condition("_ut4grad_allreduce", use_dgc=dgc, use_lamb=lamb)
        if strategy.collective_mode in COLLECTIVE_MODES and strategy.mode != "collective":
            raise AssertionError(
                "local_sgd and grad_allreduce can be used under collective mode: set "
                f"strategy.mode to 'collective', it is {strategy.mode!r}"
            )

    def _check_condition(self, name: str, **others: Any) -> None:
        """Raise AssertionError naming the first of `others` that is set."""
        for other, value in others.items():
            if value is True:
                raise AssertionError(f"you can't use {name} and {other} together")

    # ---- the program of this process

    def _try_to_compile(self, startup_program: Program, main_program: Program) -> Any:
        """Rewrite both programs for this worker; return the program to run.

        In mode "collective" it is `main_program` itself, else a CompiledProgram with data
        parallelism over the workers. Several rings and hierarchical all-reduce are for several
        machines: on one there is one ring.
        """
        strategy = self._strategy
        self._limit_rings(strategy)
        self._transpile(startup_program, main_program)
        if strategy.mode == "collective":
            return main_program
        if self._loss is None:
            raise RuntimeError("call minimize(loss), which compiles the program of that loss")
        strategy.num_trainers = self._fleet.worker_num()
        strategy.trainer_id = self._fleet.worker_index()
        strategy.trainers_endpoints = self._endpoints()
        strategy.enable_backward_optimizer_op_deps = True
        return CompiledProgram(main_program).with_data_parallel(
            loss_name=self._loss.name,
            build_strategy=strategy,
            exec_strategy=strategy.exec_strategy,
            share_vars_from=None,
        )

    def _limit_rings(self, strategy: DistributedStrategy) -> None:
        """Set rings and threads by the number of machines, as release 1.8 does."""
        if self._node_num() <= 1:
            if strategy.nccl_comm_num > 1:
                LOG.warning("set nccl_comm_num=1 since you only have 1 node.")
            if strategy.use_hierarchical_allreduce:
                LOG.warning("set use_hierarchical_allreduce=False since you only have 1 node.")
            strategy.nccl_comm_num, strategy.use_hierarchical_allreduce = 1, False
        if FLAGS_sync_nccl_allreduce.read():
            levels = 2 if strategy.use_hierarchical_allreduce else 1
            strategy.exec_strategy.num_threads = levels * strategy.nccl_comm_num + 1
        if strategy.sync_batch_norm:
            strategy.nccl_comm_num, strategy.use_hierarchical_allreduce = 1, False
            strategy.exec_strategy.num_threads = 1

    def _node_num(self) -> int:
        """The number of machines that the workers run on."""
        return len({endpoint.rpartition(":")[0].strip() for endpoint in self._endpoints()})

    def _endpoints(self) -> list[str]:
        """The workers' endpoints, the first of which is the rendezvous."""
        return list(self._fleet.worker_endpoints())

    def _transpile(self, startup_program: Program, main_program: Program) -> None:
        """Rewrite both programs for this worker; a single worker needs no rewriting.

        Ports are not waited for here: the workers meet when the startup program runs.
        """
        number, endpoints = self._fleet.worker_index(), self._endpoints()
        if self.print_config:
            print(f"worker {number} of {len(endpoints)}: {', '.join(endpoints)}")
        if len(endpoints) == 1:
            return
        config = DistributeTranspilerConfig()
        config.wait_port = False
        for name in (
            "mode", "collective_mode", "nccl_comm_num", "use_hierarchical_allreduce",
            "hierarchical_allreduce_inter_nranks",
        ):  # fmt: skip
            setattr(config, name, getattr(self._strategy, name))
        DistributeTranspiler(config).transpile(
            trainer_id=number, program=main_program, startup_program=startup_program,
            trainers=",".join(endpoints), current_endpoint=endpoints[number],
        )  # fmt: skip


def _checked(strategy: object) -> DistributedStrategy:
    """The settings, by default new ones; TypeError and ValueError for others."""
    settings = DistributedStrategy() if strategy is None else strategy
    if not isinstance(settings, DistributedStrategy):
        kind = type(settings).__name__
        raise TypeError(f"strategy must be a collective DistributedStrategy, not {kind}")
    checkpoints: object = settings.recompute_checkpoints
    if not is_list(checkpoints):
        kind = type(checkpoints).__name__
        raise ValueError(f"DistStrategy.recompute_checkpoints should be a List, not {kind}")
    return settings


def _innermost(optimizer: Any) -> str:
    """The class name of the innermost wrapped optimizer."""
    inner = getattr(optimizer, "_optimizer", None)
    return type(optimizer).__name__ if inner is None else _innermost(inner)
