"""Weights of saved models as integers."""

import numpy as np
import pytest

import fluid
from fluid.contrib.slim.quantization import WeightQuantization
from runtime.files.checkpoint import load_tensor


@pytest.fixture
def model(exe, fresh_programs, tmp_path):
    x = fluid.data("x", [-1, 3])
    out = fluid.layers.fc(x, 2, param_attr="w", bias_attr=False)
    exe.run(fluid.default_startup_program())
    weight = np.float32([[0.5, 1.0], [-1.27, 0.02], [0.1, -2.54]])
    fluid.global_scope().find_var("w").get_tensor().set(weight, fluid.CPUPlace())
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [out], exe)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("channel_wise_abs_max", [[50, 50], [-127, 1], [10, -127]]),
        ("abs_max", [[25, 50], [-64, 1], [5, -127]]),
    ],
)
def test_weights_are_saved_as_levels_and_as_rounded_floats(kind, expected, model, exe):
    WeightQuantization(str(model / "model")).quantize_weight_to_int(
        str(model), weight_quantize_type=kind, generate_test_model=True
    )
    program = fluid.Program.parse_from_string((model / "quantized_model/__model__").read_bytes())
    (mul,) = [op for op in program.global_block().ops if op.type == "mul"]
    scales = np.array(mul.attr("w_quant_scale"))
    assert mul.attr("quantize_weight_bits") == 8
    levels, _ = load_tensor(model / "quantized_model" / "w")
    assert levels.dtype == np.int8 and levels.tolist() == expected
    fluid.io.load_inference_model(str(model / "test_model"), exe)
    rounded = np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(rounded, levels * scales, rtol=1e-6)


def test_wrong_arguments_raise():
    quantization = WeightQuantization("model")
    with pytest.raises(AssertionError, match="relu is not supported"):
        quantization.quantize_weight_to_int("to", quantizable_op_type=["relu"])
    with pytest.raises(AssertionError, match="weight_bits should be 8 or 16"):
        quantization.quantize_weight_to_int("to", weight_bits=4)
