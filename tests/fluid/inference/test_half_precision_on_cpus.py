"""Inference in half precision on every level of CPU: products of bfloat16, or widened ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.codegen.native.host import supported
from compiler.options import Options
from fluid.saving.inference_model import read_inference_model

FEED = {"x": np.random.default_rng(3).normal(size=(2, 5, 13, 11)).astype(np.float32)}
BOUNDS = {"fp16": 2e-3, "bf16": 2e-2}
"""Of the largest number, between targets that round at almost the same places."""


def _network() -> Any:
    """Odd channels, strides, groups, depthwise filters, both poolings, and products of rows."""
    x = fluid.data("x", [None, 5, 13, 11])
    seen = fluid.layers.conv2d(x, 18, 3, 2, 1, act="relu")
    seen = fluid.layers.elementwise_add(seen, fluid.layers.conv2d(x, 18, 1, 2), act="relu")
    seen = fluid.layers.conv2d(seen, 18, 3, padding=1, groups=3)
    seen = fluid.layers.conv2d(seen, 18, 3, padding=1, groups=18, act="relu6")
    seen = fluid.layers.pool2d(seen, 3, "max", 2, 1)
    rows = fluid.layers.reshape(seen, [0, 18, -1])
    rows = fluid.layers.matmul(rows, rows, transpose_x=True, alpha=0.1)
    both = fluid.layers.concat([fluid.layers.flatten(each) for each in (rows, seen)], 1)
    return fluid.layers.fc(fluid.layers.fc(both, 33, act="gelu"), 7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("model"))
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        out = _network()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.save_inference_model(folder, ["x"], [out], exe, main)
    return folder


def _run(model: str, dtype: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> np.ndarray:
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        return fluid.create_predictor(model, dtype=dtype).run(FEED)[0]


@pytest.mark.parametrize(
    ("level", "dtype"),
    [(level, "bf16") for level in supported() if level != "avx512vnni"]
    + [(level, "fp16") for level in [*supported()][:1]],
)
def test_levels_agree_with_numpy(
    model: str, level: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = _run(model, dtype, monkeypatch, FLUID_TARGET="numpy")
    got = _run(model, dtype, monkeypatch, FLUID_TARGET="native", FLUID_CPU=level)
    np.testing.assert_allclose(got, want, rtol=0, atol=BOUNDS[dtype] * abs(want).max())
    exact = _run(model, "fp32", monkeypatch)
    assert 0 < abs(got - exact).max() <= BOUNDS[dtype] * abs(exact).max()


def test_a_module_says_which_products_it_widens(model: Path) -> None:
    saved = read_inference_model(str(model))
    sources = {}
    for level in ("avx512bf16", "avx512"):
        params = {name: param.array for name, param in saved.params.items()}
        module = compiler.compile(
            saved.program, feed=["x"], fetch=[var.name for var in saved.fetches], params=params,
            options=Options(dtype="bf16"), target=f"native:{level}",
        )  # fmt: skip
        sources[level] = module.source
    note = "factors widened to float32: "
    assert f"{note}avx512 has no products of bfloat16" in sources["avx512"]
    assert f"{note}avx512" not in sources["avx512bf16"]
    assert "dpbf16ps" in sources["avx512bf16"] and "dpbf16ps" not in sources["avx512"]
