"""Quantization of trained models under the module name of release 1.8.5."""

from fluid.contrib.slim.quantization.post_training import PostTrainingQuantization
from fluid.contrib.slim.quantization.weight_quantization import WeightQuantization

__all__ = ["PostTrainingQuantization", "WeightQuantization"]
