"""Base class of fleets: the role of this process, files divided among workers, collectives.

`Fleet` is the base class of release 1.8, `BaseDistributedAlgorithm` its name in OpenKS. Differences
from both: docs/reference_behaviour.md, "Fleet and OpenKS".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from compiler.ir.types import Array
from fleet.roles.base import RoleMakerBase
from fleet.roles.cloud import PaddleCloudRoleMaker
from fluid.executor import Executor
from fluid.framework import Variable
from fluid.optimizer import Optimizer
from runtime.device import CPUPlace

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Mode(IntEnum):
    """How a fleet trains: with transpiled programs and servers, PSLIB, or collectives."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3


class Fleet:
    """One process's part in a distributed job.

    `init` determines its role; `distributed_optimizer` wraps an optimizer whose `minimize` rewrites
    the program for this role. Then `main_program` and `startup_program` are what this process runs,
    `_origin_program` the single-process program.
    """

    def __init__(self, mode: Mode | int) -> None:
        self._is_initialized = False
        self._mode = Mode(mode)
        self._role_maker: RoleMakerBase | None = None
        self._optimizer: Any = None
        self._executor: Executor | None = None
        self.startup_program: Any = None
        self.main_program: Any = None
        self._origin_program: Any = None

    def init(self, role_maker: RoleMakerBase | Mode | None = None) -> None:
        """Determine this process's role, from the environment unless a role maker is passed.

        A Mode only sets the mode: OpenKS calls the constructor `init(mode)`. Raises TypeError
        if `role_maker` is not a role maker, and what its `generate_role` raises.
        """
        if isinstance(role_maker, Mode):
            self._mode = role_maker
            return
        maker = role_maker
        if maker is None:
            maker = PaddleCloudRoleMaker(self._mode is Mode.COLLECTIVE)
        _expect(maker, RoleMakerBase, "role_maker must be a RoleMakerBase")
        maker.generate_role()
        self._role_maker = maker
        self._executor = Executor(CPUPlace())
        self._is_initialized = True

    @property
    def mode(self) -> Mode:
        """How the fleet trains."""
        return self._mode

    @property
    def is_initialized(self) -> bool:
        """Whether `init` has determined the role."""
        return self._is_initialized

    @property
    def role(self) -> RoleMakerBase:
        """The role maker. Raises RuntimeError before `init`."""
        return self._role

    @property
    def _role(self) -> RoleMakerBase:
        """The role maker. Raises RuntimeError before `init`."""
        if self._role_maker is None:
            raise RuntimeError("this process has no role yet: call fleet.init(role_maker) first")
        return self._role_maker

    # ---- who this process is ----

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        return self._role.is_first_worker()

    def is_worker(self) -> bool:
        """Whether this process trains."""
        return self._role.is_worker()

    def _is_worker(self) -> bool:
        """Whether this process trains; the name in OpenKS's document."""
        return self.is_worker()

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        return self._role.is_server()

    def worker_index(self) -> int:
        """This worker's number."""
        return self._role.worker_index()

    def server_index(self) -> int:
        """This server's number."""
        return self._role.server_index()

    def worker_num(self) -> int:
        """The number of workers."""
        return self._role.worker_num()

    def server_num(self) -> int:
        """The number of servers."""
        return len(self._role.get_pserver_endpoints())

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The workers' endpoints, as a list or comma-separated."""
        return _listed(self._role.get_trainer_endpoints(), to_string)

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """The servers' endpoints, as a list or comma-separated."""
        return _listed(self._role.get_pserver_endpoints(), to_string)

    # ---- work in common ----

    def split_files(self, files: list[str]) -> list[str]:
        """The files of this worker: a contiguous range of the list, one more for the first workers.

        Raises TypeError if `files` is not a list.
        """
        _expect(files, list, "files must be a list")
        return share_of(files, self.worker_index(), self.worker_num())

    def all_reduce_worker(self, input: list[float] | Array, output: list[float] | Array) -> None:
        """Sum one-dimensional `input` over the workers into `output`; as the role maker does."""
        self._role.all_reduce_worker(input, output)

    def barrier_worker(self) -> None:
        """Wait until every worker has called this."""
        self._role.barrier_worker()

    def barrier_workers(self) -> None:
        """Wait until every worker has called this; the name in OpenKS's document."""
        self.barrier_worker()


def _listed(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints


def _expect(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{what}, not {type(value).__name__}")


def share_of(items: list[str], index: int, count: int) -> list[str]:
    """The items of one of `count` workers.

    >>> [share_of(list("abcde"), index, 2) for index in range(2)]
    [['a', 'b', 'c'], ['d', 'e']]
    """
    least, more = divmod(len(items), count)
    start = index * least + min(index, more)
    return items[start : start + least + (index < more)]


class DistributedOptimizer:
    """Wraps an optimizer; `strategy` defines how it is distributed.

    Raises TypeError if `optimizer` is neither an optimizer nor one decorated for mixed precision.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not isinstance(optimizer, Optimizer) and not hasattr(optimizer, "_optimizer"):
            raise TypeError(f"optimizer must be a fluid.optimizer, not {type(optimizer).__name__}")
        self._optimizer = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> list[Any]:
        """Append the gradient ops of `loss`; return (parameter, gradient) pairs."""
        return self._optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads: list[Any]) -> list[Any]:
        """Append the update ops of (parameter, gradient) pairs; return these ops."""
        return self._optimizer.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append gradient and update ops, and rewrite the programs for this process."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to distribute")
