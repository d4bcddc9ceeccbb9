"""Inference in float16: nearly the same numbers, half the weights, and what it is refused for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.errors import CompileError
from compiler.options import Options
from fluid.inference_model import read_inference_model
from fluid.predictor import Predictor

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


def test_a_predictor_computes_in_float16(model: Path) -> None:
    wide = Predictor(read_inference_model(str(model)))
    half = Predictor(read_inference_model(str(model)), options=Options(dtype="fp16"))
    (wanted,), (found,) = wide.run(FEED), half.run(FEED)
    assert found.dtype == np.float32 and not np.array_equal(found, wanted)
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-4)


def test_weights_that_are_lent_are_cast_ahead(model: Path) -> None:
    saved = read_inference_model(str(model))
    sizes = []
    for dtype in ("fp32", "fp16"):
        params = {name: each.array for name, each in saved.params.items()}
        fetch = [var.name for var in saved.fetches]
        options = Options(dtype=dtype)
        module = compiler.compile(
            saved.program, feed=["x"], fetch=fetch, params=params, options=options
        )
        sizes.append(sum(params[each.name].nbytes for each in module.params))
    assert sizes[1] <= sizes[0] / 2


@pytest.mark.parametrize("place", [fluid.CPUPlace(), fluid.CUDAPlace(0)], ids=["cpu", "cuda"])
def test_an_executor_does_so_where_the_environment_says_it(
    model: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(place, fluid.CUDAPlace):
        pytest.importorskip("triton")
    found = []
    for dtype in ("", "fp16"):
        monkeypatch.setenv("FLUID_DTYPE", dtype)
        exe = fluid.Executor(place)
        with fluid.scope_guard(fluid.Scope()):
            program, _, fetched = fluid.io.load_inference_model(str(model), exe)
            found += exe.run(program, feed=FEED, fetch_list=fetched)
    assert not np.array_equal(*found)
    np.testing.assert_allclose(found[1], found[0], rtol=2e-2, atol=2e-4)


def test_a_training_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_DTYPE", "fp16")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(network()))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        with pytest.raises(CompileError, match="is for inference, but the program computes grad"):
            exe.run(main, feed=FEED)


def test_element_types_that_cannot_be_computed_in_are_refused() -> None:
    assert Options.from_env({"FLUID_DTYPE": "fp16"}).dtype == "fp16"
    with pytest.raises(ValueError, match="dtype is 'int8', expected"):
        Options.from_env({"FLUID_DTYPE": "int8"})
