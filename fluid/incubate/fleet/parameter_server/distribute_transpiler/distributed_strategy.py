"""Strategies of training with parameter servers."""

from fleet.strategies import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    ServerRuntimeConfig,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)
from fluid.transpiler.distribute.config import DistributedMode, DistributeTranspilerConfig

__all__ = [
    "AsyncStrategy",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "ServerRuntimeConfig",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]
