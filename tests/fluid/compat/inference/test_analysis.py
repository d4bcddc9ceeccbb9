"""The predictors of release 1.8.5, used as scripts of that time use them."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from compiler.passes.pipeline import PASSES
from fluid.compat.inference import analysis_config
from fluid.core import (
    AnalysisConfig,
    NativeConfig,
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    create_paddle_predictor,
)
from runtime.errors import FeedError, LodError, NotInitialized

GOLDEN = Path(__file__).parents[3] / "golden" / "inference"


def folder(case: str) -> str:
    return str(GOLDEN / f"{case}__separate")


def recorded(case: str) -> dict[str, Any]:
    with np.load(GOLDEN / f"{case}__io.npz") as file:
        return {name.removeprefix("in."): file[name] for name in file.files}


def offsets(lengths: np.ndarray) -> list[list[int]]:
    return [[0, *np.cumsum(lengths).tolist()]]


X, PRICES = (recorded("fit_a_line")[name] for name in ("x", "out"))


def predictor(**settings: Any) -> Any:
    config = AnalysisConfig(folder("fit_a_line"))
    for name, value in settings.items():
        getattr(config, name)(value)
    return create_paddle_predictor(config)


# ---- the two ways to run ----


def test_zero_copy():
    """As PaddleOCR and PaddleHub do it."""
    path = GOLDEN / "lenet_bn__combined"
    config = AnalysisConfig(str(path / "model"), str(path / "params"))
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_memory_optim()
    config.delete_pass("conv_transpose_eltwiseadd_bn_fuse_pass")
    config.switch_use_feed_fetch_ops(False)
    model, known = create_paddle_predictor(config), recorded("lenet_bn")
    for name in model.get_input_names():
        tensor = model.get_input_tensor(name)
        tensor.reshape(known[name].shape)
        tensor.copy_from_cpu(known[name].copy())
    assert model.zero_copy_run() is True
    (name,) = model.get_output_names()
    output = model.get_output_tensor(name)
    np.testing.assert_allclose(output.copy_to_cpu(), known["out"], rtol=1e-5, atol=1e-5)
    assert (output.shape(), output.lod()) == (list(known["out"].shape), [])
    assert output.type() == PaddleDType.FLOAT32


def test_tensors():
    model = predictor()
    (result,) = model.run([PaddleTensor(X)])
    np.testing.assert_allclose(result.as_ndarray(), PRICES, rtol=1e-5)
    assert result.name == model.get_output_names()[0]
    assert (result.shape, result.lod, result.dtype) == ([3, 1], [], PaddleDType.FLOAT32)
    np.testing.assert_allclose(result.data.float_data(), PRICES.reshape(-1), rtol=1e-5)


def test_tensors_and_then_an_output_by_name():
    model = predictor()
    model.run([PaddleTensor(X)])
    output = model.get_output_tensor(model.get_output_names()[0])
    np.testing.assert_allclose(output.copy_to_cpu(), PRICES, rtol=1e-5)


def test_a_tensor_made_field_by_field():
    tensor = PaddleTensor()
    assert (tensor.name, tensor.shape, tensor.lod, tensor.data.length()) == ("", [], [], 0)
    tensor.name, tensor.shape, tensor.dtype = "x", [3, 13], PaddleDType.FLOAT32
    tensor.data = PaddleBuf(X.reshape(-1).tolist())
    (result,) = predictor().run([tensor])
    np.testing.assert_allclose(result.as_ndarray(), PRICES, rtol=1e-5)


def test_sequences():
    known = recorded("tagger_gru_crf")
    lod = offsets(known["lod:in.words"])
    model = create_paddle_predictor(AnalysisConfig(folder("tagger_gru_crf")))
    (result,) = model.run([PaddleTensor(known["words"], "words", lod)])
    np.testing.assert_array_equal(result.as_ndarray(), known["out"])
    assert (result.lod, result.dtype) == (lod, PaddleDType.INT64)
    assert result.data.int64_data() == known["out"].reshape(-1).tolist()
    words = model.get_input_tensor("words")
    words.copy_from_cpu(known["words"])
    words.set_lod(lod)
    model.zero_copy_run()
    output = model.get_output_tensor(model.get_output_names()[0])
    assert (words.lod(), output.lod()) == (lod, lod)
    np.testing.assert_array_equal(output.copy_to_cpu(), known["out"])


def test_names_count_only_where_asked_for():
    (result,) = predictor().run([PaddleTensor(X, "another")])
    assert result.shape == [3, 1]
    model = predictor(switch_specify_input_names=True)
    assert model.run([PaddleTensor(X, "x")])[0].shape == [3, 1]
    with pytest.raises(FeedError, match="no feed 'another'"):
        model.run([PaddleTensor(X, "another")])


def test_a_native_predictor():
    config = NativeConfig()
    config.model_dir = folder("fit_a_line")
    model = create_paddle_predictor(config)
    (result,) = model.run([PaddleTensor(X)])
    np.testing.assert_allclose(result.as_ndarray(), PRICES, rtol=1e-5)
    assert type(model) is fluid.core.NativePaddlePredictor


def test_clones_share_the_model_but_not_their_tensors():
    model = predictor()
    clones = [model.clone() for _ in range(4)]
    feeds = [X + number for number in range(4)]
    expected = [model.run([PaddleTensor(feed)])[0].as_ndarray() for feed in feeds]

    def work(number: int) -> Any:
        clone, result = clones[number], []
        for _ in range(10):
            clone.get_input_tensor("x").copy_from_cpu(feeds[number])
            clone.zero_copy_run()
            result.append(clone.get_output_tensor(clone.get_output_names()[0]).copy_to_cpu())
        return result

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(work, range(4))):
            assert all(np.array_equal(each, expected[number]) for each in found)
    with pytest.raises(NotInitialized):
        model.get_input_tensor("x").copy_to_cpu()


def test_outputs_are_copies():
    model = predictor()
    (result,) = model.run([PaddleTensor(X)])
    output = model.get_output_tensor(result.name)
    for array in (output.copy_to_cpu(), result.as_ndarray()):
        array[...] = 0.0
    np.testing.assert_allclose(output.copy_to_cpu(), PRICES, rtol=1e-5)
    np.testing.assert_allclose(result.as_ndarray(), PRICES, rtol=1e-5)


# ---- where models come from ----


def test_a_model_in_memory():
    program, params = ((GOLDEN / "fit_a_line__combined" / n).read_bytes() for n in LAYOUT)
    config = AnalysisConfig()
    config.set_model_buffer(program, len(program), params, len(params))
    assert config.model_from_memory()
    assert create_paddle_predictor(config).run([PaddleTensor(X)])[0].shape == [3, 1]


LAYOUT = ("model", "params")


def test_files_in_two_folders(tmp_path: Path):
    (tmp_path / "elsewhere").write_bytes((GOLDEN / "fit_a_line__combined/params").read_bytes())
    config = AnalysisConfig()
    config.set_prog_file(str(GOLDEN / "fit_a_line__combined/model"))
    config.set_params_file(str(tmp_path / "elsewhere"))
    assert create_paddle_predictor(config).run([PaddleTensor(X)])[0].shape == [3, 1]


def test_a_config_that_names_no_model():
    with pytest.raises(ValueError, match="names no model"):
        create_paddle_predictor(AnalysisConfig())
    with pytest.raises(ValueError, match="no directory"):
        create_paddle_predictor(AnalysisConfig("/none"))
    with pytest.raises(TypeError, match="must be an AnalysisConfig"):
        create_paddle_predictor("folder")


# ---- settings ----


def test_defaults_are_those_of_the_reference():
    config = AnalysisConfig("folder")
    assert (config.model_dir(), config.prog_file(), config.params_file()) == ("folder", "", "")
    assert config.ir_optim()
    assert config.use_feed_fetch_ops_enabled()
    numbers = config.memory_pool_init_size_mb(), config.cpu_math_library_num_threads()
    assert numbers == (100, 1)
    off = config.use_gpu, config.mkldnn_enabled, config.specify_input_name
    assert not any(each() for each in (*off, config.glog_info_disabled, config.model_from_memory))


def test_settings_are_kept():
    config = AnalysisConfig("folder")
    config.enable_mkldnn()
    config.set_cpu_math_library_num_threads(4)
    config.switch_ir_optim(False)
    config.set_mkldnn_cache_capacity(10)
    other = AnalysisConfig(config)
    config.switch_ir_optim(True)
    assert other.mkldnn_enabled()
    assert not other.ir_optim()
    assert other.cpu_math_library_num_threads() == 4
    assert other.to_native_config().model_dir == "folder"


def test_the_names_of_passes_are_those_of_the_compiler():
    assert set(analysis_config.PASSES) <= {pass_.name for pass_ in PASSES}


@pytest.mark.parametrize(
    ("setting", "left_out"),
    [
        ({}, set()),
        ({"delete_pass": "fc_fuse_pass"}, set()),
        ({"delete_pass": "fuse_batch_norm"}, {"fuse_batch_norm"}),
        ({"switch_ir_optim": False}, {*analysis_config.IR_PASSES}),
    ],
)
def test_passes_that_are_left_out(setting: dict[str, Any], left_out: set[str]):
    config = AnalysisConfig(folder("resnet_cifar8"))
    for name, value in setting.items():
        getattr(config, name)(value)
    assert config.disabled() == left_out
    model, known = create_paddle_predictor(config), recorded("resnet_cifar8")
    names = model.get_input_names()
    (result,) = model.run([PaddleTensor(known[name], name) for name in names])
    np.testing.assert_allclose(result.as_ndarray(), known["out"], rtol=1e-4, atol=1e-5)
    folded = {"fuse_batch_norm", "split_batch_norm"} - left_out
    added = model._shared.memory().parameters - nbytes_of(folder("resnet_cifar8"))
    assert bool(folded) == (added > 0)


def nbytes_of(path: str) -> int:
    return sum(
        t.array.nbytes
        for t in fluid.saving.inference_model.read_inference_model(path).params.values()
    )


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("enable_tensorrt_engine", (1 << 20, 1, 3, AnalysisConfig.Precision.Half)),
        ("enable_lite_engine", ()),
        ("enable_quantizer", ()),
        ("enable_profile", ()),
    ],
)
def test_unsupported_settings_warn(call: str, arguments: tuple[Any, ...]):
    config = AnalysisConfig(folder("fit_a_line"))
    with pytest.warns(UserWarning, match=f"^{call}: "):
        getattr(config, call)(*arguments)
    assert not config.tensorrt_engine_enabled()


# ---- what is refused ----


@pytest.mark.parametrize("element", ["float64", "float16", "uint32", "complex64"])
def test_elements_that_would_be_cut_are_rejected(element: str):
    """The reference makes int32 of them."""
    tensor = predictor().get_input_tensor("x")
    with pytest.raises(TypeError, match=rf"takes float32, int64, int32, not {element}"):
        tensor.copy_from_cpu(X.astype(element))
    with pytest.raises(TypeError, match="give data"):
        PaddleTensor(X.astype(element))


def test_small_integers_become_int32():
    assert PaddleTensor(np.arange(3, dtype="uint8")).data.int32_data() == [0, 1, 2]
    assert PaddleTensor(np.array([True])).dtype is PaddleDType.INT32


def test_other_elements_than_the_model_is_fed():
    with pytest.raises(FeedError, match="must be float32, but int64"):
        predictor().run([PaddleTensor(X.astype("int64"))])


def test_arrays_in_another_order_give_the_same_numbers():
    """The reference reads their memory as if it were in row-major order."""
    model = predictor()
    model.get_input_tensor("x").copy_from_cpu(np.asfortranarray(X))
    model.zero_copy_run()
    output = model.get_output_tensor(model.get_output_names()[0])
    np.testing.assert_allclose(output.copy_to_cpu(), PRICES, rtol=1e-5)


def test_inputs_that_are_missing_or_unknown():
    model = predictor()
    with pytest.raises(NotInitialized, match="'x' has no values yet"):
        model.zero_copy_run()
    with pytest.raises(FeedError, match="is fed 1"):
        model.run([])
    with pytest.raises(CompileError, match="no input named 'y'"):
        model.get_input_tensor("y")
    with pytest.raises(CompileError, match="no output named 'x'"):
        model.get_output_tensor("x")


def test_offsets_that_do_not_cover_the_values():
    with pytest.raises(LodError, match=r"\[\[0, 2\]\] do not fit") as caught:
        predictor().run([PaddleTensor(X, "x", [[0, 2]])])
    assert "in tensor 'x'" in caught.value.__notes__[-1]


def test_a_shape_with_another_number_of_elements():
    tensor = PaddleTensor(X)
    tensor.shape = [3, 12]
    with pytest.raises(FeedError, match=r"the shape \[3, 12\], but 39 elements"):
        predictor().run([tensor])


def test_another_shape_keeps_as_many_values():
    tensor = predictor().get_input_tensor("x")
    assert tensor.shape() == [0]
    tensor.copy_from_cpu(X)
    tensor.reshape([13, 3])
    np.testing.assert_array_equal(tensor.copy_to_cpu(), X.reshape(13, 3))
    tensor.reshape([2, 13])
    assert tensor.shape() == [2, 13]
    with pytest.raises(NotInitialized):
        tensor.copy_to_cpu()


def test_buffers():
    buffer = PaddleBuf(8)
    assert (buffer.length(), buffer.empty(), PaddleBuf(0).empty()) == (8, False, True)
    buffer.resize(4)
    assert buffer.length() == 8
    buffer.reset(np.array([1, 2]))
    assert (buffer.int64_data(), buffer.length()) == ([1, 2], 16)
    assert PaddleBuf([1.0]).int32_data() == [0x3F800000]
    with pytest.raises(ValueError, match="not 'float64'"):
        buffer.tolist("float64")
    with pytest.raises(TypeError, match="takes a NumPy array"):
        buffer.reset("words")


def test_results_of_other_elements_have_no_number():
    result = PaddleTensor.result("y", np.array([True, False]))
    np.testing.assert_array_equal(result.as_ndarray(), [True, False])
    with pytest.raises(TypeError, match="bool has no PaddleDType"):
        assert result.dtype


# ---- in an old script ----

SCRIPT = """
import sys
import numpy as np
from paddle.fluid.core import AnalysisConfig, PaddleTensor, create_paddle_predictor
import paddle.fluid as fluid

config = AnalysisConfig(sys.argv[1])
config.disable_gpu()
config.switch_ir_optim(True)
config.set_cpu_math_library_num_threads(1)
predictor = create_paddle_predictor(config)
tensor = fluid.core.PaddleTensor(np.load(sys.argv[2]))
print(*predictor.run([tensor])[0].as_ndarray().shape)
"""


def test_a_script_that_imports_paddle(tmp_path: Path):
    (tmp_path / "serve.py").write_text(SCRIPT)
    np.save(tmp_path / "x.npy", X)
    command = ["-m", "fluid", "run", "serve.py", folder("fit_a_line"), "x.npy"]
    environment = os.environ | {"PYTHONPATH": str(GOLDEN.parents[2])}
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("3 1\n", "")
