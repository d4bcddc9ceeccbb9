"""Mixed precision training with float32 parameters: docs/mixed_precision.md."""

from fluid.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision, decorate
from fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecision", "decorate"]
