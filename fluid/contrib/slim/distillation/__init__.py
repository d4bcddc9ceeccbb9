"""Distillation: losses between a student network and a teacher."""

from fluid.contrib.slim.distillation import distiller
from fluid.contrib.slim.distillation.distiller import (
    FSPDistiller,
    L2Distiller,
    SoftLabelDistiller,
)

__all__ = ["FSPDistiller", "L2Distiller", "SoftLabelDistiller", "distiller"]
