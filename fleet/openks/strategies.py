"""Strategies of OpenKS, composed of small settings.

`CPUStrategy([SyncModeConfig()]).setup_optimizer(algorithm, optimizer)` wraps an optimizer for
parameter servers, `GPUStrategy(exec_config=[…], dist_config=[…])` for collective training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fleet.collective_strategy import DistributedStrategy
from fluid.compiler import ExecutionStrategy
from fluid.transpiler.distribute.config import DistributeTranspilerConfig

__all__ = [
    "ASyncModelConfig",
    "CPUStrategy",
    "CollectiveMode",
    "GPUStrategy",
    "GeoSGDModelConfig",
    "GradAllreduce",
    "HalfSyncModelConfig",
    "HierarchicalAllreduce",
    "LocalSGD",
    "NCCL2Mode",
    "NumThreadsConfig",
    "SyncModeConfig",
    "TablesOnServers",
]


class StrategySetting(Protocol):
    """Sets the fields of a strategy."""

    def apply(self, strategy: Any) -> None:
        """Set the fields."""


class _Mode:
    """Exchange mode of trainers and servers: fields of DistributeTranspilerConfig."""

    sync_mode = False
    runtime_split_send_recv = False

    def apply(self, strategy: DistributeTranspilerConfig) -> None:
        """Set the fields of a transpiler's settings."""
        strategy.runtime_split_send_recv = False
        strategy.sync_mode = self.sync_mode
        strategy.runtime_split_send_recv = self.runtime_split_send_recv


class SyncModeConfig(_Mode):
    """Synchronous steps of all trainers."""

    sync_mode = True


class HalfSyncModelConfig(_Mode):
    """A trainer's step ends when its gradients are sent."""


class ASyncModelConfig(_Mode):
    """Trainers do not wait for their gradients to be sent."""

    runtime_split_send_recv = True


class GeoSGDModelConfig(_Mode):
    """Trainers send parameter deltas every `update_frequency` steps."""

    runtime_split_send_recv = True

    def __init__(self, update_frequency: int = 100) -> None:
        self.update_frequency = update_frequency

    def apply(self, strategy: DistributeTranspilerConfig) -> None:
        """Set the fields of a transpiler's settings."""
        super().apply(strategy)
        strategy.geo_sgd_mode = True
        strategy.geo_sgd_need_push_nums = self.update_frequency


class NCCL2Mode:
    """Gradients are all-reduced by the data-parallel build."""

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the mode."""
        strategy.mode = "nccl2"
        strategy.collective_mode = None


class CollectiveMode:
    """Gradients or parameters are all-reduced by ops in the program."""

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the mode."""
        strategy.mode = "collective"


class GradAllreduce(CollectiveMode):
    """Gradients are all-reduced over the workers in each step."""

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the mode."""
        super().apply(strategy)
        strategy.collective_mode = "grad_allreduce"


class LocalSGD(CollectiveMode):
    """Workers update locally, then average their parameters."""

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the mode."""
        super().apply(strategy)
        strategy.collective_mode = "local_sgd"


class HierarchicalAllreduce:
    """All-reduce in groups of `inter_nranks` workers first."""

    def __init__(self, inter_nranks: int = 0) -> None:
        self.inter_nranks = inter_nranks

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the fields."""
        strategy.use_hierarchical_allreduce = True
        strategy.hierarchical_allreduce_inter_nranks = self.inter_nranks


class TablesOnServers:
    """Sparse tables, or the parameters selected by `params`, are on parameter servers.

    `params` and `strategy` are `params_on_servers` and `server_strategy` of `fleet.heterogeneous`.
    """

    def __init__(self, params: Any = None, strategy: Any = None) -> None:
        self.params, self.strategy = params, strategy

    def apply(self, strategy: DistributedStrategy) -> None:
        """Set the fields."""
        strategy.params_on_servers = self.params
        strategy.server_strategy = self.strategy


class NumThreadsConfig:
    """The number of threads that run ops; no effect, since ops of a device run sequentially."""

    def __init__(self, num_threads: int = 1) -> None:
        self.num_threads = num_threads

    def apply(self, strategy: ExecutionStrategy) -> None:
        """Set the number."""
        strategy.num_threads = self.num_threads


class CPUStrategy:
    """Settings of training with parameter servers, synchronous by default."""

    def __init__(self, configs: Sequence[StrategySetting] = ()) -> None:
        self.strategy = DistributeTranspilerConfig()
        self.strategy.wait_port = False
        _apply(configs, self.strategy)

    def setup_optimizer(self, algorithm: Any, optimizer: Any) -> Any:
        """Wrap an optimizer by an algorithm, with these settings."""
        return algorithm.distributed_optimizer(optimizer, self.strategy)


class GPUStrategy:
    """Settings of collective training: execution and distribution."""

    def __init__(
        self,
        exec_config: Sequence[StrategySetting] = (),
        dist_config: Sequence[StrategySetting] = (),
    ) -> None:
        self.strategy = DistributedStrategy()
        _apply(exec_config, self.strategy.exec_strategy)
        _apply(dist_config, self.strategy)

    def setup_optimizer(self, algorithm: Any, optimizer: Any) -> Any:
        """Wrap an optimizer by an algorithm, with these settings."""
        return algorithm.distributed_optimizer(optimizer, self.strategy)


def _apply(configs: Sequence[StrategySetting], strategy: Any) -> None:
    """Apply settings in order. Raises TypeError if one is not a setting."""
    for config in configs:
        if not hasattr(config, "apply"):
            raise TypeError(f"{config!r} is no setting: expected objects such as SyncModeConfig()")
        config.apply(strategy)
