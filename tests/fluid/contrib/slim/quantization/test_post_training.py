"""Quantization of a saved model by batches of its inputs."""

import numpy as np
import pytest

import fluid
from fluid.contrib.slim.quantization import PostTrainingQuantization
from tests.fluid.contrib.quantized_network import network

DATA = np.random.RandomState(0).randn(8, 1, 6, 6).astype(np.float32)


@pytest.fixture
def model(exe, fresh_programs, tmp_path):
    _, test, startup = network()
    exe.run(startup)
    predicted = test.global_block().var("fc_0.tmp_2")
    fluid.io.save_inference_model(str(tmp_path / "model"), ["img"], [predicted], exe, test)
    return str(tmp_path / "model")


def samples():
    for image in DATA:
        yield (image,)


def batches():
    yield (DATA,)


def predictions(folder, exe):
    program, _, fetches = fluid.io.load_inference_model(folder, exe)
    return exe.run(program, feed={"img": DATA}, fetch_list=fetches)[0]


@pytest.mark.parametrize("algorithm", ["KL", "abs_max"])
def test_a_quantized_model_predicts_nearly_the_same(algorithm, model, exe, tmp_path):
    expected = predictions(model, exe)
    quantization = PostTrainingQuantization(
        exe,
        model_dir=model,
        sample_generator=samples,
        batch_size=4,
        algo=algorithm,
        quantizable_op_type=["conv2d", "mul", "pool2d", "elementwise_add"],
        is_use_cache_file=algorithm == "KL",
        cache_dir=str(tmp_path / "cache"),
    )
    ops = quantization.quantize().global_block().ops
    conv = next(op for op in ops if op.type == "conv2d")
    assert conv.attr("quantization_type") == f"post_{algorithm.lower()}"
    assert conv.attr("out_threshold") > 0
    kinds = [op.type for op in ops]
    assert kinds.count("fake_quantize_dequantize_moving_average_abs_max") == 2
    folder = str(tmp_path / "quantized")
    quantization.save_quantized_model(folder)
    result = predictions(folder, exe)
    assert 0 < np.abs(result - expected).max() < 0.02
    weight = np.array(fluid.global_scope().find_var("conv2d_0.w_0").get_tensor())
    assert np.abs(weight).max(axis=(1, 2, 3)).tolist() == [127] * 4


def test_ranges_are_recorded_as_attributes(model, exe, tmp_path):
    quantization = PostTrainingQuantization(
        exe, model_dir=model, batch_generator=batches, algo="min_max"
    )
    conv = next(op for op in quantization.quantize().global_block().ops if op.type == "conv2d")
    assert conv.attr("img.min") == DATA.min() and conv.attr("img.max") == DATA.max()
    assert len(conv.attr("conv2d_0.w_0.max")) == 4 and conv.attr("out_min") < conv.attr("out_max")
    quantization.save_quantized_model(str(tmp_path / "ranges"))
    np.testing.assert_array_equal(
        predictions(str(tmp_path / "ranges"), exe), predictions(model, exe)
    )


def test_wrong_arguments_raise(model, exe):
    def quantization(**arguments):
        return PostTrainingQuantization(exe, model_dir=model, **arguments)

    with pytest.raises(AssertionError, match="cannot be None in the same time"):
        quantization()
    with pytest.raises(AssertionError, match=r"algo \(kl\) should be one of KL"):
        quantization(batch_generator=batches, algo="kl")
    with pytest.raises(AssertionError, match="lstm is not supported"):
        quantization(batch_generator=batches, quantizable_op_type=["lstm"])
    with pytest.raises(ValueError, match="less than a batch of 9"):
        quantization(sample_generator=samples, batch_size=9).quantize()
    with pytest.raises(RuntimeError, match=r"call quantize\(\) first"):
        quantization(batch_generator=batches).save_quantized_model("folder")
