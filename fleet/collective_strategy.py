"""Settings of collective training: those of a data-parallel build, and how to distribute it."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

from fluid.compiler import BuildStrategy, ExecutionStrategy

__all__ = ["DistFCConfig", "DistributedStrategy", "LambConfig"]


class LambConfig:
    """Settings of Lamb; release 1.8 has none."""


class DistFCConfig:
    """Settings of fully connected layers that are spread over workers; release 1.8 has none."""


class DistributedStrategy(BuildStrategy):
    """How a program is built for collective training; the fields of BuildStrategy, and these.

    - `mode`: "nccl2", gradients are summed by the data-parallel build; "collective", by ops in the
      program, where `collective_mode` is "grad_allreduce" or "local_sgd".
    - `use_local_sgd`: short for mode "collective" with "local_sgd".
    - `nccl_comm_num`: the number of rings; `use_hierarchical_allreduce` and
      `hierarchical_allreduce_inter_nranks`: sums in groups of workers first. Both act on several
      machines only.
    - `forward_recompute`: keep what is in `recompute_checkpoints` for backward, and compute the
      rest again.
    - `use_amp`: train in float16 where that is safe, the loss scaled by `amp_loss_scaling` first.
    - `exec_strategy`: how the program is run.
    - `params_on_servers`, `server_strategy`: for a job that has parameter servers beside its
      workers, see `fleet.heterogeneous`; release 1.8 has neither.
    - `use_dist_fc`, `dist_fc_config`: accepted with the checks of release 1.8, without effect.
    """

    _defaults: ClassVar = MappingProxyType(
        {
            **BuildStrategy._defaults,
            "use_local_sgd": False,
            "use_dist_fc": False,
            "dist_fc_config": None,
            "mode": "nccl2",
            "collective_mode": None,
            "nccl_comm_num": 1,
            "forward_recompute": False,
            "recompute_checkpoints": [],
            "use_amp": False,
            "amp_loss_scaling": 2**15,
            "exec_strategy": ExecutionStrategy(),
            "params_on_servers": None,
            "server_strategy": None,
            "_ut4grad_allreduce": False,
        }
    )
