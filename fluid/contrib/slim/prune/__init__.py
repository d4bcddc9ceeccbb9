"""Pruning of parameters."""

from fluid.contrib.slim.prune import auto_prune_strategy, prune_strategy, pruner
from fluid.contrib.slim.prune.auto_prune_strategy import AutoPruneStrategy
from fluid.contrib.slim.prune.prune_strategy import PruneStrategy, UniformPruneStrategy
from fluid.contrib.slim.prune.pruner import Pruner, StructurePruner
from fluid.contrib.slim.prune.sensitive_prune_strategy import SensitivePruneStrategy

__all__ = [
    "AutoPruneStrategy", "PruneStrategy", "Pruner", "SensitivePruneStrategy", "StructurePruner",
    "UniformPruneStrategy", "auto_prune_strategy", "prune_strategy", "pruner",
]  # fmt: skip
