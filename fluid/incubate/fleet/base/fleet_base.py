"""The base classes of fleets and of their optimizers."""

from fleet.algorithm import DistributedOptimizer, Fleet, Mode

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]
