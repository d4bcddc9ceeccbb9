"""Pruning of parameters."""

from fluid.contrib.slim.prune import pruner
from fluid.contrib.slim.prune.pruner import Pruner, StructurePruner

__all__ = ["Pruner", "StructurePruner", "pruner"]
