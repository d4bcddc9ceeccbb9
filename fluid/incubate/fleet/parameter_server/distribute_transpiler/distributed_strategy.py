"""Strategies of training with parameter servers."""

from fleet import strategies
from fleet.strategies import *  # noqa: F403
from fluid.transpiler.distribute.config import DistributedMode, DistributeTranspilerConfig

__all__ = [
    *(name for name in strategies.__all__ if name != "strategy_for"),
    "DistributeTranspilerConfig",
    "DistributedMode",
]
