"""The fleet of parameter servers."""

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.parameter_server import DistributedTranspiler, TranspilerOptimizer, fleet
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
    "DistributedOptimizer",
    "DistributedStrategy",
    "DistributedTranspiler",
    "Fleet",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "Mode",
    "ServerRuntimeConfig",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "fleet",
]
