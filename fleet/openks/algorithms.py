"""The names of OpenKS for the fleets and optimizers of this package.

Where OpenKS's document and source differ, both spellings work: `is_worker` and `_is_worker`,
`barrier_worker` and `barrier_workers`, the constructor and `init(mode)`.
"""

from __future__ import annotations

import sys
from typing import Any

from fleet.algorithm import DistributedOptimizer, Fleet
from fleet.collective_strategy import DistributedStrategy
from fleet.heterogeneous import Heterogeneous, HeterogeneousOptimizer
from fleet.parameter_server import DistributedTranspiler, TranspilerOptimizer
from fleet.roles.base import RoleMakerBase
from fluid.framework import Program, Variable, is_compiled_with_cuda
from fluid.optimizer import Optimizer

__all__ = [
    "BaseDistributedAlgorithm",
    "BaseDistributedOptimizer",
    "CPUDistributedAlgorithm",
    "GPUDistributedAlgorithm",
    "GeneralDistributedOptimizer",
    "HeterogeneousDistributedOptimizer",
    "KSDistributedFactory",
]

BaseDistributedAlgorithm = Fleet
BaseDistributedOptimizer = DistributedOptimizer


class GeneralDistributedOptimizer(TranspilerOptimizer):
    """Wraps an optimizer of the CPU algorithm; `minimize` takes its arguments in OpenKS's order."""

    def __init__(
        self, optimizer: Optimizer, strategy: object = None,
        algorithm: DistributedTranspiler | None = None,
    ) -> None:  # fmt: skip
        super().__init__(optimizer, strategy, CPU if algorithm is None else algorithm)

    # OpenKS's order of arguments, not Paddle's.
    def minimize(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: object = None,
        no_grad_set: object = None,
        *,
        scopes: object = None,
    ) -> tuple[list[Any], list[Any]]:
        """Append gradient and update ops to the program of `loss`, then build that of this process.

        Returns the update ops and (parameter, gradient) pairs; raises as TranspilerOptimizer does.
        """
        return super().minimize(loss, scopes, startup_program, parameter_list, no_grad_set)


class HeterogeneousDistributedOptimizer(HeterogeneousOptimizer):
    """Wraps an optimizer of the GPU algorithm; without `strategy`, its defaults apply.

    Gradients are all-reduced between workers; if the job has servers, sparse tables, or the
    parameters selected by `strategy.params_on_servers`, are on these instead.
    """

    def __init__(
        self, optimizer: Any, strategy: DistributedStrategy | None = None, algorithm: Any = None
    ) -> None:
        super().__init__(optimizer, strategy, GPU if algorithm is None else algorithm)


class CPUDistributedAlgorithm(DistributedTranspiler):
    """Training with parameter servers: `DistributeTranspiler` builds the program of each
    process.
    """

    def _wrap(self, optimizer: Optimizer, strategy: object) -> GeneralDistributedOptimizer:
        return GeneralDistributedOptimizer(optimizer, strategy, self)


class GPUDistributedAlgorithm(Heterogeneous):
    """Collective training, by NCCL on GPUs; without GPUs by Gloo on CPUs, after a notice.

    A role maker with servers adds parameter servers for sparse tables.
    """

    _noted = False

    def init(self, role_maker: RoleMakerBase | object = None) -> None:
        """Determine this process's role, as `BaseDistributedAlgorithm.init` does."""
        super().init(role_maker)
        if not (is_compiled_with_cuda() or GPUDistributedAlgorithm._noted):
            GPUDistributedAlgorithm._noted = True
            print("fleet: no GPU here; collectives run on CPUs, over Gloo", file=sys.stderr)

    def _wrap(
        self, optimizer: object, strategy: DistributedStrategy | None
    ) -> HeterogeneousDistributedOptimizer:
        return HeterogeneousDistributedOptimizer(optimizer, strategy, self)


CPU = CPUDistributedAlgorithm()
GPU = GPUDistributedAlgorithm()


class KSDistributedFactory:
    """Chooses a distributed algorithm by a number."""

    @staticmethod
    def instantiation(flag: int | str) -> CPUDistributedAlgorithm | GPUDistributedAlgorithm:
        """The algorithm of this process: on CPUs for 0 or "cpu", on GPUs for 1 or "gpu".

        The same object on every call. Raises ValueError for another flag.
        """
        if flag in (0, "cpu"):
            return CPU
        if flag in (1, "gpu"):
            return GPU
        raise ValueError(f"flag must be 0 or 'cpu', or 1 or 'gpu', but is {flag!r}")
