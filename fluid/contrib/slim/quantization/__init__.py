"""Quantization: passes over `IrGraph` for training with fake quantization and for freezing.

`transform` inserts fake quantization, `activations` that of ops without weights and the scales of
results, `freeze` makes the program for inference. `post_training` and `weight_quantization`
quantize saved models.
"""

from fluid.contrib.slim.quantization import (
    post_training_quantization,
    quantization_pass,
    quantization_strategy,
)
from fluid.contrib.slim.quantization.post_training_quantization import (
    PostTrainingQuantization,
    WeightQuantization,
)
from fluid.contrib.slim.quantization.quantization_pass import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from fluid.contrib.slim.quantization.quantization_strategy import QuantizationStrategy

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "PostTrainingQuantization",
    "QuantizationFreezePass",
    "QuantizationStrategy",
    "QuantizationTransformPass",
    "TransformForMobilePass",
    "WeightQuantization",
    "post_training_quantization",
    "quantization_pass",
    "quantization_strategy",
]
