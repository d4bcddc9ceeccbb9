"""`PSLib`: the fleet of release 1.8 whose servers are closed source.

Roles, files and the division of work are those of every fleet, and `minimize` appends gradients.
What needs the servers raises when it is called: the packages of release 1.8.5 do not have them
either. The fleet of `distribute_transpiler` has servers here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.roles.base import RoleMakerBase
from fleet.roles.mpi import MPISymetricRoleMaker
from fluid.backward import append_backward
from fluid.executor import global_scope
from fluid.framework import Program, Variable, program_of
from fluid.optimizer import Optimizer
from fluid.recording.variable import Parameter
from runtime.tensors.scope import Scope

__all__ = ["DownpourOptimizer", "PSLib", "fleet", "fleet_embedding"]


def _without_servers(name: str) -> Callable[..., NoReturn]:
    """A method that raises NotImplementedError."""

    def method(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"PSLib.{name} needs the servers of PSLIB, which are closed source; use the fleet of "
            "paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler, which has servers"
        )

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "Raise NotImplementedError: it needs the servers of PSLIB."
    return method


class PSLib(Fleet):
    """The part of this process in a job with the servers of PSLIB.

    The role maker is an MPISymetricRoleMaker by default. Methods that need the servers raise
    NotImplementedError.
    """

    def __init__(self) -> None:
        super().__init__(Mode.PSLIB)
        self.main_programs: list[Program] = []
        self.scopes: list[Scope] = []

    def init(self, role_maker: RoleMakerBase | Mode | None = None) -> None:
        """Determine the role of this process; TypeError for what is no role maker."""
        super().init(MPISymetricRoleMaker() if role_maker is None else role_maker)

    def distributed_optimizer(
        self, optimizer: Optimizer, strategy: Mapping[str, object] | None = None
    ) -> DownpourOptimizer:
        """Wrap an optimizer, whose updates are the servers' work; TypeError for another object."""
        self._optimizer = DownpourOptimizer(optimizer, strategy, self)
        return self._optimizer

    init_worker = _without_servers("init_worker")
    init_server = _without_servers("init_server")
    run_server = _without_servers("run_server")
    stop_worker = _without_servers("stop_worker")
    save_inference_model = _without_servers("save_inference_model")
    save_persistables = _without_servers("save_persistables")
    save_model_with_whitelist = _without_servers("save_model_with_whitelist")
    save_cache_model = _without_servers("save_cache_model")
    save_model = _without_servers("save_model")
    save_one_table = _without_servers("save_one_table")
    load_model = _without_servers("load_model")
    load_one_table = _without_servers("load_one_table")
    load_pslib_whitelist = _without_servers("load_pslib_whitelist")
    shrink_sparse_table = _without_servers("shrink_sparse_table")
    shrink_dense_table = _without_servers("shrink_dense_table")
    clear_one_table = _without_servers("clear_one_table")
    clear_model = _without_servers("clear_model")
    print_table_stat = _without_servers("print_table_stat")
    set_pull_local_thread_num = _without_servers("set_pull_local_thread_num")
    confirm = _without_servers("confirm")
    revert = _without_servers("revert")


class DownpourOptimizer(DistributedOptimizer):
    """Wraps an optimizer of a fleet with PSLIB, by default that of this module.

    `strategy` describes tables of the servers. TypeError for what is no optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        strategy: Mapping[str, object] | None = None,
        algorithm: PSLib | None = None,
    ) -> None:
        super().__init__(optimizer, dict(strategy or {}))
        self._fleet = fleet if algorithm is None else algorithm

    backward = _without_servers("backward")
    apply_gradients = _without_servers("apply_gradients")

    def minimize(  # pyright: ignore[reportIncompatibleMethodOverride] - Paddle's order of arguments
        self,
        losses: Variable | Sequence[Variable],
        scopes: Scope | Sequence[Scope] | None = None,
        startup_programs: object = None,
        parameter_list: object = None,
        no_grad_set: object = None,
    ) -> list[object]:
        """Append the gradient ops of one or several losses, but no updates.

        Returns None for the update ops, which are the servers' work, and for each loss its pairs of
        parameter and gradient by name. Raises ValueError for another number of scopes than losses.
        """
        every_loss = [losses] if isinstance(losses, Variable) else [*losses]
        pairs = [_gradients(loss, parameter_list, no_grad_set) for loss in every_loss]
        self._fleet.main_programs = [program_of(loss) for loss in every_loss]
        self._fleet.scopes = _scopes(scopes, len(every_loss))
        return [None, pairs[0] if isinstance(losses, Variable) else pairs]


def _gradients(
    loss: Variable, parameter_list: Any, no_grad_set: Any
) -> list[tuple[Parameter, Variable | None]]:
    pairs = append_backward(loss, parameter_list, no_grad_set)
    return sorted(pairs, key=lambda pair: pair[0].name)


def _scopes(scopes: Scope | Sequence[Scope] | None, count: int) -> list[Scope]:
    if scopes is None:
        return [global_scope()] * count
    listed = [scopes] if isinstance(scopes, Scope) else [*scopes]
    if len(listed) != count:
        raise ValueError(f"minimize has {count} losses and {len(listed)} scopes: pass one for each")
    return listed


class fleet_embedding:
    """Lookups in tables of the servers: `__enter__` raises NotImplementedError."""

    def __init__(self, click_name: str | None, scale_sparse_grad: bool = True) -> None:
        self.click_name, self.scale_sparse_grad = click_name or "", scale_sparse_grad

    __enter__ = _without_servers("fleet_embedding")

    def __exit__(self, *error: object) -> None:
        """Nothing."""


fleet = PSLib()
"""The fleet of this process."""
