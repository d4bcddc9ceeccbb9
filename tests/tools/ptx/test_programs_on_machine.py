"""FLUID_GPU=ptx:80: packages and programs on CUDAPlace(0) run on the PTX machine."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import compiler
import fluid
from fluid.__main__ import main
from fluid.inference.packages import load_compiled
from fluid.running import kernels_ahead
from runtime.errors import PlaceError

pytest.importorskip("triton")
pytest.importorskip("torch")

MODEL = Path(__file__).resolve().parents[2] / "golden" / "inference" / "digits_mlp__separate"
FEED = np.random.default_rng(1).random((3, 1, 8, 8), "f4")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("FLUID_GPU", "ptx:80")


def test_a_package_runs_and_fluid_infer_takes_it(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["compile", str(MODEL), "--target", "cuda:80", "-o", str(out)]) == 0
    (result,) = load_compiled(out).run([FEED])
    (want,) = fluid.create_predictor(str(MODEL)).run([FEED])
    np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
    np.save(tmp_path / "x.npy", FEED)
    inputs = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
    assert main(["infer", str(out), *inputs]) == 0
    (written,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_array_equal(written, result)
    capsys.readouterr()


def test_a_program_is_trained_as_on_the_cpu():
    def losses(place):
        main_program, startup = fluid.Program(), fluid.Program()
        main_program.random_seed = startup.random_seed = 7
        with fluid.program_guard(main_program, startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 13], "float32")
            y = fluid.data("y", [None, 1], "float32")
            hidden = fluid.layers.fc(x, 8, act="relu")
            cost = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y)
            loss = fluid.layers.mean(cost)
            fluid.optimizer.Adam(0.1).minimize(loss)
        executor = fluid.Executor(place)
        with fluid.scope_guard(fluid.Scope()):
            fluid.Executor(fluid.CPUPlace()).run(startup)
            values = np.random.default_rng(2)
            feed = {"x": values.random((6, 13), "f4"), "y": values.random((6, 1), "f4")}
            return [executor.run(main_program, feed=feed, fetch_list=[loss])[0] for _ in range(2)]

    result = losses(fluid.CUDAPlace(0))
    np.testing.assert_allclose(result, losses(fluid.CPUPlace()), rtol=2e-5)


def test_pixels_that_no_tap_covers_have_no_gradient():
    """Their phase has no taps: what divides by the number of taps must not make it nonzero."""

    def gradient(place):
        main_program, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 7
        with fluid.program_guard(main_program, startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, 4, 4, 7])
            x.stop_gradient = False
            y = fluid.layers.conv2d(x, 8, 3, [3, 2], [0, 2], [1, 2], bias_attr=False)
            (d_x,) = fluid.gradients(fluid.layers.exp(y), [x])
        with fluid.scope_guard(fluid.Scope()):
            fluid.Executor(fluid.CPUPlace()).run(startup)
            feed = {"x": np.zeros((2, 4, 4, 7), "f4")}
            return fluid.Executor(place).run(main_program, feed, [d_x])[0]

    result = gradient(fluid.CUDAPlace(0))
    assert not result[..., 1::2].any() and result[..., ::2].any()
    np.testing.assert_allclose(result, gradient(fluid.CPUPlace()), rtol=1e-5, atol=1e-6)


def test_products_of_half_precision_run_on_the_tensor_cores_of_sm_90(tmp_path, monkeypatch):
    model, out = saved_product(tmp_path / "model"), tmp_path / "out"
    assert main(["compile", model, "--target", "cuda:90", "-o", str(out)]) == 0
    assert any("wgmma.mma_async" in path.read_text() for path in out.rglob("*.ptx"))
    monkeypatch.setenv("FLUID_GPU", "ptx:90")
    feed = np.random.default_rng(1).standard_normal((70, 64)).astype("f4")
    (result,) = load_compiled(out).run([feed])
    (want,) = fluid.create_predictor(model).run([feed])
    np.testing.assert_allclose(result, want, rtol=5e-3, atol=5e-2)


def saved_product(folder):
    """A model of one product in float16."""
    main_program, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    startup.random_seed = 3
    with fluid.program_guard(main_program, startup), fluid.scope_guard(scope):
        x = fluid.data("x", [None, 64], "float32")
        weight = fluid.layers.create_parameter([64, 64], "float32")
        product = fluid.layers.matmul(*(fluid.layers.cast(each, "float16") for each in (x, weight)))
        out = fluid.layers.cast(product, "float32")
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], executor, main_program)
    return str(folder)


def test_other_machines_and_devices_are_refused(monkeypatch):
    from runtime.gpu.cuda import device_of

    with pytest.raises(PlaceError, match="one device"):
        device_of(fluid.CUDAPlace(1))
    monkeypatch.setenv("FLUID_GPU", "ptx:55")
    with pytest.raises(PlaceError, match="ptx:80"):
        device_of(fluid.CUDAPlace(0))


def test_kernels_ahead_loads_binaries_of_all_kernels_before_the_first_step(monkeypatch, tmp_path):
    """The same as on the machine, for a GPU; here its driver only takes note of what it loads."""
    monkeypatch.delenv("FLUID_GPU")
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    loaded = []
    driver = SimpleNamespace(
        maker="cuda", announce=None, load=lambda code, entry, shared: loaded.append(code)
    )
    for name, given in (("device_of", "cuda:0"), ("gpu_of", "cuda:80"), ("driver_of", driver)):
        monkeypatch.setattr(kernels_ahead, name, lambda *_, given=given: given)
    monkeypatch.setattr(kernels_ahead, "stream_of", lambda device: lambda: 0)
    program = fluid.Program()
    with fluid.program_guard(program), fluid.unique_name.guard():
        x = fluid.data("x", [None, 8], "float32")
        y = fluid.layers.reduce_sum(fluid.layers.softmax(x), dim=0)
    module = compiler.compile(program, feed=["x"], fetch=[y], target="triton")
    created, names = kernels_ahead.with_machine_code(module, fluid.CUDAPlace(0))
    assert {spec.name for spec in module.kernels} <= names.keys()
    assert len(loaded) == len(module.kernels) > 0 and "triton.jit" not in created.source
    assert all(code.startswith(b"\x7fELF") for code in loaded)
    on_cpu = kernels_ahead.with_machine_code(replace(module, target="native"), fluid.CPUPlace())
    assert on_cpu[1] == {}


def test_processes_of_several_gpus_share_the_processors(monkeypatch):
    """Each of them compiles the same kernels at the same time."""
    monkeypatch.setattr(kernels_ahead, "available_processors", lambda: 32)
    monkeypatch.setattr(kernels_ahead, "gpu_count", lambda: 8)
    counts = [kernels_ahead._processes(SimpleNamespace(collectives=each)) for each in ((), ("g",))]
    assert counts == [32, 4]
