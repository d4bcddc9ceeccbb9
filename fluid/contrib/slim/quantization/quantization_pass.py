"""The passes of quantization-aware training under the module name of release 1.8.5."""

from fluid.contrib.slim.quantization.activations import (
    AddQuantDequantPass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
)
from fluid.contrib.slim.quantization.freeze import (
    DEQUANTIZE_OPS,
    QUANTIZE_OPS,
    ConvertToInt8Pass,
    QuantizationFreezePass,
    TransformForMobilePass,
)
from fluid.contrib.slim.quantization.quantized_slots import (
    OUT_SCALE_OPS,
    SLOTS,
    input_names,
    output_names,
)
from fluid.contrib.slim.quantization.transform import QuantizationTransformPass

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "TransformForMobilePass",
]

_fake_quant_op_list = list(QUANTIZE_OPS)
_fake_dequant_op_list = list(DEQUANTIZE_OPS)
_fake_quant_dequant_op_list = ["fake_quantize_dequantize_moving_average_abs_max"]
_out_scale_op_list = OUT_SCALE_OPS
_op_real_in_out_name = SLOTS
_get_op_input_var_names = input_names
_get_op_output_var_names = output_names
