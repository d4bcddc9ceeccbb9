"""The fleet of collective training."""

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.collective import (
    Collective,
    CollectiveOptimizer,
    DistFCConfig,
    DistributedStrategy,
    LambConfig,
    TrainStatus,
    fleet,
)
from fleet.file_systems import LocalFS

__all__ = [
    "Collective",
    "CollectiveOptimizer",
    "DistFCConfig",
    "DistributedOptimizer",
    "DistributedStrategy",
    "Fleet",
    "LambConfig",
    "LocalFS",
    "Mode",
    "TrainStatus",
    "fleet",
]
