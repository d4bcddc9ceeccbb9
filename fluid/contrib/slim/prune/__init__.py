"""Pruning of parameters."""

from fluid.contrib.slim.prune import prune_strategy, pruner
from fluid.contrib.slim.prune.prune_strategy import PruneStrategy, UniformPruneStrategy
from fluid.contrib.slim.prune.pruner import Pruner, StructurePruner

__all__ = [
    "PruneStrategy", "Pruner", "StructurePruner", "UniformPruneStrategy", "prune_strategy",
    "pruner",
]  # fmt: skip
