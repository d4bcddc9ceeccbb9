"""Distillation: losses between a student network and a teacher."""

from fluid.contrib.slim.distillation import distillation_strategy, distiller
from fluid.contrib.slim.distillation.distillation_strategy import DistillationStrategy
from fluid.contrib.slim.distillation.distiller import (
    FSPDistiller,
    L2Distiller,
    SoftLabelDistiller,
)

__all__ = [
    "DistillationStrategy", "FSPDistiller", "L2Distiller", "SoftLabelDistiller",
    "distillation_strategy", "distiller",
]  # fmt: skip
