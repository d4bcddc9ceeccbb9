"""Settings of collective training: those of a data-parallel build, and of distribution."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType

from fluid.compiler import BuildStrategy, ExecutionStrategy
from fluid.framework import Variable

__all__ = ["DistFCConfig", "DistributedStrategy", "LambConfig"]


class LambConfig:
    """Settings of Lamb; empty, as in release 1.8."""


class DistFCConfig:
    """Settings of fully connected layers distributed over workers; empty, as in release 1.8."""


class DistributedStrategy(BuildStrategy):
    """Build settings of collective training: the fields of BuildStrategy, and these.

    - `mode`: "nccl2", gradients are all-reduced by the data-parallel build; "collective", by ops in
      the program, where `collective_mode` is "grad_allreduce" or "local_sgd".
    - `use_local_sgd`: short for mode "collective" with "local_sgd".
    - `nccl_comm_num`: the number of rings; `use_hierarchical_allreduce` and
      `hierarchical_allreduce_inter_nranks`: all-reduce within groups of workers first. Both have an
      effect only on several machines.
    - `forward_recompute`: keep `recompute_checkpoints` for backward, and recompute the other
      activations.
    - `use_amp`: mixed precision, with the initial loss scale `amp_loss_scaling`.
    - `exec_strategy`: execution settings.
    - `params_on_servers`, `server_strategy`: for a job with parameter servers in addition to its
      workers, see `fleet.heterogeneous`; not in release 1.8.
    - `use_dist_fc`, `dist_fc_config`: accepted with the checks of release 1.8, without effect.
    """

    use_local_sgd: bool
    use_dist_fc: bool
    dist_fc_config: DistFCConfig | None
    mode: str
    collective_mode: str | None
    forward_recompute: bool
    recompute_checkpoints: list[Variable | str]
    use_amp: bool
    amp_loss_scaling: float
    exec_strategy: ExecutionStrategy
    params_on_servers: Collection[str] | Callable[[Variable], bool] | None
    server_strategy: object
    _ut4grad_allreduce: bool
    _defaults = MappingProxyType(
        {
            **BuildStrategy._defaults,
            "use_local_sgd": False,
            "use_dist_fc": False,
            "dist_fc_config": None,
            "mode": "nccl2",
            "collective_mode": None,
            "nccl_comm_num": 1,
            "forward_recompute": False,
            "recompute_checkpoints": list[Variable | str](),
            "use_amp": False,
            "amp_loss_scaling": 2**15,
            "exec_strategy": ExecutionStrategy(),
            "params_on_servers": None,
            "server_strategy": None,
            "_ut4grad_allreduce": False,
        }
    )

    @property
    def tests_grad_allreduce(self) -> bool:
        """Whether `_ut4grad_allreduce` is set, as in the reference's unit tests."""
        return self._ut4grad_allreduce
