"""Inference in two bytes: nearly the same numbers, half the weights, and what it is refused for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.errors import CompileError
from compiler.ir import types
from compiler.ir.types import DType
from compiler.options import Options
from compiler.plan import StorageKind
from fluid.inference.predictor import Predictor
from fluid.saving.inference_model import read_inference_model

FEED = {"x": np.random.default_rng(3).normal(size=(3, 1, 12, 12)).astype(np.float32)}


def network() -> Any:
    x = fluid.data("x", [None, 1, 12, 12])
    seen = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
    seen = fluid.layers.batch_norm(seen, act="relu")
    seen = fluid.layers.pool2d(seen, 2, "max", 2)
    return fluid.layers.fc(fluid.layers.fc(seen, 64, act="relu"), 10, act="softmax")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        out = network()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], exe, main)
    return folder


BOUNDS = {"fp16": 2e-2, "bf16": 4e-2}
"""How far results may be from those in float32, by what is computed in."""


@pytest.mark.parametrize("dtype", BOUNDS)
def test_a_predictor_computes_in_two_bytes(model: Path, dtype: str) -> None:
    wide = Predictor(read_inference_model(str(model)))
    half = Predictor(read_inference_model(str(model)), options=Options(dtype=dtype))
    (wanted,), (actual,) = wide.run(FEED), half.run(FEED)
    assert actual.dtype == np.float32 and not np.array_equal(actual, wanted)
    np.testing.assert_allclose(actual, wanted, rtol=BOUNDS[dtype], atol=2e-4)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_weights_that_are_constant_are_cast_ahead(model: Path, dtype: str) -> None:
    saved = read_inference_model(str(model))
    sizes = []
    for chosen in ("fp32", dtype):
        params = {name: param.array for name, param in saved.params.items()}
        fetch = [var.name for var in saved.fetches]
        options = Options(dtype=chosen)
        module = compiler.compile(
            saved.program, feed=["x"], fetch=fetch, params=params, options=options
        )
        sizes.append(sum(params[param.name].nbytes for param in module.params))
    assert sizes[1] <= sizes[0] / 2


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("place", [fluid.CPUPlace(), fluid.CUDAPlace(0)], ids=["cpu", "cuda"])
def test_the_environment_enables_it_for_an_executor(
    model: Path, place: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(place, fluid.CUDAPlace):
        pytest.importorskip("triton")
    results = []
    for chosen in ("", dtype):
        monkeypatch.setenv("FLUID_DTYPE", chosen)
        exe = fluid.Executor(place)
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetched = fluid.io.load_inference_model(str(model), exe)
            results += exe.run(program, feed=FEED, fetch_list=fetched)
    assert not np.array_equal(*results)
    np.testing.assert_allclose(results[1], results[0], rtol=BOUNDS[dtype], atol=2e-4)


RECORDED = Path(__file__).parents[2] / "golden/inference"


@pytest.mark.parametrize("name", ["lenet_bn", "resnet_cifar8", "transformer_encoder"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_recorded_models_agree_on_both_targets(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 2 % of the largest number in bfloat16, 0.2 % in float16; targets as near each other."""
    pytest.importorskip("triton")
    monkeypatch.setenv("FLUID_DTYPE", dtype)
    kept = np.load(RECORDED / f"{name}__io.npz")
    results = [kept["out"]]
    for place in (fluid.CPUPlace(), fluid.CUDAPlace(0)):
        exe = fluid.Executor(place)
        with fluid.scope_guard(fluid.Scope()):
            folder = str(RECORDED / f"{name}__separate")
            program, feeds, fetched = fluid.io.load_inference_model(folder, exe)
            inputs = {feed: kept[f"in.{feed}"] for feed in feeds}
            results += exe.run(program, feed=inputs, fetch_list=fetched)
    bound = {"fp16": 2e-3, "bf16": 2e-2}[dtype] * np.abs(results[0]).max()
    for a, b in ((0, 1), (0, 2), (1, 2)):
        np.testing.assert_allclose(results[a], results[b], rtol=0, atol=bound)


def casts_of(exe: Any, program: Any) -> int:
    """How many parameters an executor's last step of a program casts."""
    ops = [op for step in exe.explain(program).compiled.plan.steps for op in step.ops]
    return sum(op.kind == "cast" and op.inputs["X"][0].place is StorageKind.PARAM for op in ops)


@pytest.mark.parametrize("place", [fluid.CPUPlace(), fluid.CUDAPlace(0)], ids=["cpu", "cuda"])
def test_an_executor_casts_weights_once_until_one_is_written(
    model: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_DTYPE", "bf16")
    if isinstance(place, fluid.CUDAPlace):
        pytest.importorskip("triton")
    scope, exe = fluid.Scope(), fluid.Executor(place)

    def run(executor: Any) -> Any:
        with fluid.scope_guard(scope):
            return executor.run(program, feed=FEED, fetch_list=fetched)[0]

    with fluid.scope_guard(scope):
        program, _, fetched = fluid.io.load_inference_model(str(model), exe)
    first = run(exe)
    np.testing.assert_array_equal(run(exe), first)
    assert casts_of_scope(exe, program, scope) == 0
    weight = next(var for var in program.list_vars() if var.persistable and len(var.shape) == 2)
    tensor = scope.find_var(weight.name).get_tensor()
    tensor.set(np.array(tensor) * 2, place)
    changed = run(exe)
    assert not np.array_equal(changed, first)
    np.testing.assert_allclose(changed, run(fluid.Executor(place)), rtol=2e-2, atol=1e-4)
    assert casts_of_scope(exe, program, scope) > 0


def casts_of_scope(exe: Any, program: Any, scope: Any) -> int:
    with fluid.scope_guard(scope):
        return casts_of(exe, program)


def test_an_executor_sees_weights_that_another_program_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUID_DTYPE", "bf16")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(1.0).minimize(fluid.layers.mean(out))
    asking = fluid.Executor(fluid.CPUPlace())
    monkeypatch.delenv("FLUID_DTYPE")
    training = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((2, 4), np.float32)}
    results = []
    with fluid.scope_guard(fluid.Scope()):
        training.run(startup)
        for _ in range(3):
            monkeypatch.setenv("FLUID_DTYPE", "bf16")
            results.append(asking.run(test, feed=feed, fetch_list=[out])[0])
            monkeypatch.delenv("FLUID_DTYPE")
            training.run(main, feed=feed)
    steps = np.diff([each[0, 0] for each in results])
    np.testing.assert_allclose(steps, [-2.5, -2.5], rtol=2e-2)


def test_a_module_in_bfloat16_runs_as_a_script(model: Path, tmp_path: Path) -> None:
    saved = read_inference_model(str(model))
    params = {name: param.array for name, param in saved.params.items()}
    fetch = [var.name for var in saved.fetches]
    options = Options(dtype="bf16")
    for given in (params, None):
        module = compiler.compile(
            saved.program, feed=["x"], fetch=fetch, params=given, options=options
        )
        module.save(tmp_path / "module.py")
        shown = subprocess.run(
            [sys.executable, str(tmp_path / "module.py"), "N=2"],
            check=True, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "float32[2, 10]" in shown.stdout


def test_without_ml_dtypes_the_error_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(types._NUMPY, DType.BF16)
    predictor = Predictor(read_inference_model(str(model)), options=Options(dtype="bf16"))
    with pytest.raises(CompileError, match="bfloat16: it needs ml_dtypes") as caught:
        predictor.run(FEED)
    assert str(caught.value).endswith("hint: pip install 'fluid-compiler[native]'")


def test_a_training_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_DTYPE", "fp16")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(network()))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        with pytest.raises(CompileError, match="is for inference, but the program computes grad"):
            exe.run(main, feed=FEED)


def test_element_types_that_cannot_be_computed_in_are_rejected() -> None:
    assert Options.from_env({"FLUID_DTYPE": "fp16"}).dtype == "fp16"
    assert Options(dtype="bf16").dtype == "bf16"
    with pytest.raises(ValueError, match="FLUID_DTYPE is 'int8', expected bf16, fp16 or fp32"):
        Options.from_env({"FLUID_DTYPE": "int8"})
