"""Packages of every element type load and run where Triton is absent."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import compiler
import fluid
from compiler.options import Options
from fluid.cli.main import main
from fluid.inference.packages import model_of
from fluid.inference.predictor import Predictor, Ready
from runtime.device import CUDAPlace
from runtime.gpu.cuda import interprets
from runtime.gpu.drivers import Driver
from runtime.gpu.package import prepared, without_kernels
from runtime.packages import read_package
from tests.runtime.gpu import fake_driver as stand_in

GPU = "cuda:90"
FEED = np.random.default_rng(1).standard_normal((5, 24)).astype(np.float32)
TOLERANCE = {"tf32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}


def saved(folder, dtype):
    """A model that multiplies and adds in one element type, and returns float32."""
    main_program, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with (
        fluid.program_guard(main_program, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(scope),
    ):
        x = fluid.data("x", [None, 24])
        weight = fluid.layers.create_parameter([24, 32], "float32", name="w")
        product = fluid.layers.matmul(*(fluid.layers.cast(each, dtype) for each in (x, weight)))
        grown = fluid.layers.relu(fluid.layers.elementwise_add(product, product))
        out = fluid.layers.softmax(fluid.layers.cast(grown, "float32"))
        executor = fluid.Executor(fluid.CPUPlace())
        startup.random_seed = 3
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], executor, main_program)
    return str(folder)


@pytest.mark.skipif(not interprets(), reason="kernels are not interpreted here")
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_package_runs_without_triton(dtype, tmp_path, monkeypatch):
    if dtype == "tf32":
        monkeypatch.setenv("FLUID_TF32", "1")
    model = saved(tmp_path / "model", "float32" if dtype == "tf32" else dtype)
    folder = tmp_path / "package"
    assert main(["compile", model, "--target", GPU, "-o", str(folder)]) == 0
    package = read_package(folder)
    library = stand_in.Library(package)
    module, names = prepared(package, GPU, Driver("cuda", 0, library), lambda: 0)
    predictor = Predictor(model_of(package), ready=Ready(module, CUDAPlace(0), names))
    (actual,) = predictor.run([FEED])
    (expected,) = fluid.create_predictor(model).run([FEED])
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=TOLERANCE[dtype])
    assert len(library.launches) == len({row.kernel for row in package.rows}) > 0


def test_a_package_calls_no_library(tmp_path, monkeypatch):
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.data("x", [128, 768], "float16"), fluid.data("y", [768, 3072], "float16")
        out = fluid.layers.matmul(x, y)
        executor = fluid.Executor(fluid.CPUPlace())
        fluid.io.save_inference_model(str(tmp_path / "m"), ["x", "y"], [out], executor, program)
    options = Options(gpu=GPU)
    feed = {"x": (128, 768), "y": (768, 3072)}
    module = compiler.compile(program, feed=feed, fetch=[out], target="triton", options=options)
    assert "multiply(" in module.source
    monkeypatch.setattr("fluid.cli.compile._built", lambda *_: ({}, []))
    assert main(["compile", str(tmp_path / "m"), "--target", GPU, "-o", str(tmp_path / "p")]) == 0
    assert "multiply(" not in (tmp_path / "p" / "module.py").read_text()


def test_constants_of_kernels_are_removed_with_them():
    source = "import triton\nFLAG = tl.constexpr(\n    triton.knobs.x\n)\nDIMS = ('N',)\n"
    assert without_kernels(source) == "\n\n\n\nDIMS = ('N',)\n"
