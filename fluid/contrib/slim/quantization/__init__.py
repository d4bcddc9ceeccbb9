"""Quantization: passes over `IrGraph` for training with fake quantization and for freezing.

`transform` inserts fake quantization, `activations` that of ops without weights and the scales of
results, `freeze` makes the program for inference.
"""

from fluid.contrib.slim.quantization import quantization_pass
from fluid.contrib.slim.quantization.quantization_pass import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
    "quantization_pass",
]
