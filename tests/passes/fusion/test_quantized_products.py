"""Frozen quantized models in 8 bits: the same numbers as with levels in float32."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import supported
from compiler.driver import Compiled, compile_stages
from compiler.options import Options
from fluid.saving.inference_model import read_inference_model
from tests.support.quantized import quantize

RECORDINGS = sorted((Path(__file__).parents[2] / "golden" / "quantized").glob("*.npz"))
LEVEL = "native:avx512vnni"
needs_bytes = pytest.mark.skipif("avx512vnni" not in supported(), reason="needs AVX512_VNNI")


def _frozen(path: Path) -> tuple[Any, dict[str, np.ndarray], str]:
    """A frozen program of the reference, its parameters and what is fetched."""
    recorded = np.load(path)
    params = {n[7:]: recorded[n] for n in recorded.files if n.startswith("frozen.")}
    program = fluid.Program.parse_from_string(recorded["frozen"].tobytes())
    return program, params, str(recorded["names"][1])


def _compiled(path: Path, target: str = LEVEL, **params: np.ndarray) -> Compiled:
    program, known, fetch = _frozen(path)
    return compile_stages(
        program, feed=["img", "y"], fetch=[fetch], params={**known, **params}, target=target
    )


def _reasons(compiled: Compiled) -> list[str]:
    return [e.reason for e in compiled.context.missed if e.name == "quantized_products"]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_frozen_programs_multiply_bytes(path: Path) -> None:
    """Both layers; scales of training leave no op of their own, that of a batch does."""
    result = _compiled(path)
    kinds = [op.kind for step in result.plan.steps for op in step.ops]
    assert {"quantized_conv2d", "quantized_mul"} <= {*kinds} and not {"conv2d", "mul"} & {*kinds}
    assert ("fake_quantize_abs_max" in kinds) == (path.stem == "abs_max")
    assert "fake_channel_wise_dequantize_max_abs" not in kinds and _reasons(result) == []
    assert "vpdpbusd" in result.module.source and not result.module.source.count("# in NumPy")


@needs_bytes
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_quantized_models_match_the_reference(path: Path, tmp_path: Path) -> None:
    program, params, fetch = _frozen(path)
    recorded = np.load(path)
    feed = {n: recorded[f"feed5.{n}"] for n in ("img", "y")}
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        for name, value in params.items():
            fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
        fetched = [program.global_block().var(fetch)]
        fluid.io.save_inference_model(str(tmp_path), ["img"], fetched, exe, program)
    (got,) = fluid.create_predictor(str(tmp_path)).run({"img": feed["img"]})
    np.testing.assert_allclose(got, recorded["predicted"], rtol=1e-5, atol=1e-6)


def test_numbers_that_are_not_levels_stay_in_float32() -> None:
    (path,) = (recording for recording in RECORDINGS if recording.stem == "range")
    params = _frozen(path)[1]
    weights = params["conv2d_0.w_0"] + np.float32(0.25)
    result = _compiled(path, **{"conv2d_0.w_0": weights})
    assert [why for why in _reasons(result) if "other numbers than levels" in why]
    weights = np.where(params["fc_0.w_0"] > 0, np.float32("nan"), params["fc_0.w_0"])
    assert len(_reasons(_compiled(path, **{"fc_0.w_0": weights}))) == 1


def test_a_cpu_without_products_of_bytes_is_named() -> None:
    result = _compiled(RECORDINGS[1], "native:avx512")
    kinds = [op.kind for step in result.plan.steps for op in step.ops]
    assert "quantized_conv2d" not in kinds and "quantize_to_int8" in kinds
    assert _reasons(result) == ["the CPU has no products of bytes"] * 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, np.ndarray]]:
    """A network with a residual, batch norms, groups and odd channels, quantized."""
    folder = tmp_path_factory.mktemp("model")
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 3, 17, 15])
        first = fluid.layers.conv2d(x, 18, 5, 2, 2, bias_attr=False)
        first = fluid.layers.batch_norm(first, act="relu", is_test=True)
        second = fluid.layers.conv2d(first, 18, 3, 1, 1, groups=2, bias_attr=False)
        second = fluid.layers.elementwise_add(first, second, act="relu")
        second = fluid.layers.conv2d(second, 7, 3, 1, [1, 2], dilation=2)
        out = fluid.layers.fc(fluid.layers.pool2d(second, 2, "max", 2), 5)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(
            str(folder / "wide"), ["x"], [out], exe, main, params_filename="params"
        )
    feed = {"x": np.random.default_rng(0).normal(size=(3, 3, 17, 15)).astype(np.float32)}
    quantize(folder / "wide", folder / "narrow", feed)
    return str(folder), feed


@pytest.mark.parametrize("level", [each for each in supported() if each != "avx512"])
def test_levels_of_cpus_agree_with_numpy(
    model: tuple[str, dict[str, np.ndarray]], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums below 2 ** 24 are exact on both; steps between layers round alike."""
    folder, feed = model
    read = Options.from_env
    monkeypatch.setattr(Options, "from_env", lambda: replace(read(), winograd=False))
    results = []
    for target in ("native", "numpy"):
        monkeypatch.setenv("FLUID_TARGET", target)
        monkeypatch.setenv("FLUID_CPU", level)
        results += fluid.create_predictor(f"{folder}/narrow", params_filename="params").run(feed)
    np.testing.assert_allclose(*results, rtol=0, atol=1e-6 * abs(results[0]).max())
    wide = fluid.create_predictor(f"{folder}/wide", params_filename="params").run(feed)[0]
    assert abs(results[0] - wide).max() <= 0.05 * abs(wide).max()


@needs_bytes
def test_layers_of_a_network_run_in_one_kernel_each(
    model: tuple[str, dict[str, np.ndarray]],
) -> None:
    saved = read_inference_model(f"{model[0]}/narrow", params_filename="params")
    result = compile_stages(
        saved.program, feed=["x"], fetch=[var.name for var in saved.fetches], target=LEVEL,
        params={name: param.array for name, param in saved.params.items()},
    )  # fmt: skip
    anchors = [step.ops[0].kind for step in result.plan.steps]
    assert anchors.count("quantized_conv2d") == 3 and anchors.count("quantized_mul") == 1
    assert anchors.count("quantize_to_int8") == 2, "those of the feed and of the pooled images"
