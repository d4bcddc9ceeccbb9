"""Packages: machine code is launched as the module specifies, by a fake GPU driver."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid.cli.main import main
from fluid.inference.packages import load_compiled, model_of
from fluid.inference.predictor import Predictor, Ready
from runtime.device import CUDAPlace
from runtime.errors import PlaceError
from runtime.gpu.cuda import gpu_of, interprets
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, ManifestRow
from runtime.gpu.package import fitting, prepared, without_kernels
from runtime.packages import PackageError, read_package

pytest.importorskip("triton")
pytest.importorskip("torch")
from tests.conftest import missing_gpu
from tests.fluid.saving.test_reference_models import recorded
from tests.runtime.gpu import fake_driver as stand_in

MODELS = Path(__file__).resolve().parents[2] / "golden" / "inference"
MODEL = MODELS / "digits_mlp__separate"
GPU = "cuda:90" if interprets() or missing_gpu() else gpu_of("cuda:0")
FOR_GPU = ("--target", GPU)
"""The GPU at hand, where there is one; else kernels are interpreted."""

FEED = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)


def compiled(out, *arguments):
    assert main(["compile", str(MODEL), "-o", str(out), *arguments]) == 0
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("package"), *FOR_GPU)


@pytest.fixture
def package(folder, tmp_path):
    return read_package(Path(shutil.copytree(folder, tmp_path / "package")))


def launched(package, stream=7):
    """A predictor over a fake driver, and the calls of the driver."""
    if not interprets():
        pytest.skip("kernels are not interpreted here")
    library = stand_in.Library(package)
    driver = Driver("cuda", 0, library)
    module, names = prepared(package, GPU, driver, lambda: stream)
    return Predictor(model_of(package), ready=Ready(module, CUDAPlace(0), names)), library


def expected():
    model = fluid.create_predictor(str(MODEL))
    return model.run([FEED])


def test_code_is_launched_as_the_module_specifies(package):
    predictor, library = launched(package)
    actual = predictor.run([FEED])
    np.testing.assert_allclose(actual[0], expected()[0], rtol=1e-5, atol=1e-6)
    rows = [row for row in package.rows if row.constants.get("ROWS", 16) == 16]  # few rows
    assert [name for name, *_ in library.launches] == [row.kernel for row in rows]
    assert {stream for *_, stream in library.launches} == {7}
    assert [shared for _, _, shared, _ in library.launches] == [row.shared for row in rows]
    np.testing.assert_array_equal(predictor.run([FEED[:1]])[0], predictor.run([FEED])[0][:1])


@pytest.mark.parametrize("case", ["lenet_bn", "sentiment_conv"])
def test_models_equal_the_recorded_reference(case, tmp_path, capsys):
    assert main(["compile", str(MODELS / f"{case}__separate"), *FOR_GPU, "-o", str(tmp_path)]) == 0
    predictor, library = launched(read_package(tmp_path))
    feed, expected = recorded(case)
    (actual,) = predictor.run(feed)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5, atol=1e-5)
    assert library.launches and "run on the host" not in capsys.readouterr().out


@pytest.mark.device
def test_a_package_runs_as_kernels_and_as_numpy_code(folder, tmp_path):
    plain = load_compiled(compiled(tmp_path)).run([FEED])
    np.testing.assert_allclose(plain[0], expected()[0], rtol=1e-5, atol=1e-6)
    actual = fluid.load_compiled(str(folder)).run([FEED])
    np.testing.assert_allclose(actual[0], expected()[0], rtol=1e-5, atol=1e-6)


@pytest.mark.device
def test_fluid_infer_takes_a_package(folder, tmp_path, capsys):
    np.save(tmp_path / "x.npy", FEED)
    inputs = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
    assert main(["infer", str(folder), *inputs]) == 0
    (actual,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_allclose(actual, expected()[0], rtol=1e-5, atol=1e-6)
    capsys.readouterr()


def test_a_package_describes_itself(folder, capsys):
    assert main(["infer", str(folder), "--describe"]) == 0
    shown = capsys.readouterr().out
    assert f"a package, 4 kernels for {GPU}, " in shown
    assert "feed   img " in shown and "float32 [-1, 1, 8, 8]" in shown


@pytest.mark.device
def test_parameters_may_come_from_elsewhere(tmp_path):
    out = compiled(tmp_path, *FOR_GPU, "--without-params")
    assert not (out / "params").exists()
    with pytest.raises(CompileError, match=r"has no parameter 'fc_0.*\n.*pass params="):
        load_compiled(out)
    model = fluid.saving.inference_model.read_inference_model(str(MODEL))
    params = {name: tensor.array for name, tensor in model.params.items()}
    actual = load_compiled(out, params=params).run([FEED])
    np.testing.assert_allclose(actual[0], expected()[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "module.py",
        "__model__",
        "params",
        f"{GPU}/softmax.cubin".replace(":", "-"),
        f"{GPU}/softmax.ptx".replace(":", "-"),
    ],
)
def test_a_file_that_was_changed_is_reported(package, name):
    path = package.folder / name
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)
    with pytest.raises(PackageError, match="was changed since"):
        package.read(name)
    path.write_bytes(held + b" ")
    with pytest.raises(PackageError, match=r"has \d+ bytes, not the"):
        package.read(name)
    path.unlink()
    with pytest.raises(PackageError, match="is missing"):
        package.read(name)
    if not name.endswith("ptx"):
        with pytest.raises(PackageError):
            launched(package)


def test_no_code_for_a_gpu_reports_what_there_is():
    with pytest.raises(PackageError, match="code for cuda:80, hip:gfx942, not for cuda:90"):
        fitting(["cuda:80", "hip:gfx942"], "cuda:90")
    with pytest.raises(PackageError, match="code for cuda:90, not for cuda:100"):
        fitting(["cuda:90"], "cuda:100")
    assert fitting(["cuda:80", "cuda:86"], "cuda:89") == "cuda:86"


@pytest.mark.parametrize("change", [
    {"format": 1}, {"files": []}, {"files": {"../x": {"nbytes": 1, "sha256": ""}}},
    {"files": {".x": {"nbytes": 1, "sha256": ""}}}, {"files": {"x": {"nbytes": -1, "sha256": ""}}},
    {"kernels": [{}]}, {"kernels": 3}, {"params": None},
])  # fmt: skip
def test_a_manifest_that_is_none(package, change):
    path = package.folder / "kernels.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | change))
    with pytest.raises(PackageError, match="is not a valid list of kernels"):
        read_package(package.folder)
    path.write_text("{")
    with pytest.raises(PackageError, match="is not a valid list of kernels"):
        read_package(package.folder)
    path.unlink()
    with pytest.raises(PackageError, match="is not a package"):
        read_package(package.folder)


@pytest.mark.parametrize("change", [
    {"threads": "1"}, {"shared": -1}, {"nothing": 1 << 40}, {"parameters": ["*fp32", "tensor"]},
    {"file": 3}, {"parameters": [""]},
])  # fmt: skip
def test_a_row_that_is_none(package, change):
    row = json.loads((package.folder / "kernels.json").read_text())["kernels"][0]
    assert ManifestRow.of(row)
    with pytest.raises((ValueError, TypeError)):
        ManifestRow.of(row | change)


class Recorded:
    """A driver that records its calls."""

    announce = None

    def load(self, code, entry, shared):
        return entry

    def launch(self, function, grid, threads, shared, stream, given, together):
        self.grid, self.together = grid, together


def launcher(parameters, **constants):
    row = ManifestRow("k", "cuda:90", "k.cubin", "k", parameters, 2, constants, 128, 0)
    driver = Recorded()
    return Launcher(row, driver, b"", lambda: 0), driver


class Tensor:
    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


def test_package_rejects_unsupported_shapes():
    kernel, driver = launcher(("*fp32:16", "i32"), LANES=8, INDEX="int32")
    kernel[(2,)](Tensor(32), 5, LANES=8, INDEX="int32")
    assert (driver.grid, driver.together) == ((2,), False)
    with pytest.raises(PlaceError, match="argument 0 is 36, not a multiple of 16"):
        kernel[(1,)](Tensor(36), 5, LANES=8, INDEX="int32")
    with pytest.raises(PlaceError, match="its arguments do not fit"):
        kernel[(1,)](Tensor(32), 2**31, LANES=8, INDEX="int32")
    with pytest.raises(PlaceError, match="its arguments do not fit"):
        kernel[(1,)](Tensor(32), LANES=8, INDEX="int32")
    with pytest.raises(PlaceError, match="compile the package with --large"):
        kernel[(1,)](Tensor(32), 5, LANES=8, INDEX="int64")
    with pytest.raises(PlaceError, match="it was compiled with"):
        kernel[(1,)](Tensor(32), 5, LANES=16, INDEX="int32")
    kernel[(0,)](Tensor(32), 5, LANES=8, INDEX="int32")
    assert driver.grid == (2,), "an empty grid launches nothing"


def test_a_driver_is_entered_again_where_a_thread_does_not_know_it(package):
    predictor, library = launched(package)
    before = library.entered
    library.answers = [201]
    predictor.run([FEED])
    assert library.entered == before + 1
    library.answers = [700]
    with pytest.raises(PlaceError, match=r"cuLaunchKernel failed: out of luck \(700\)"):
        predictor.run([FEED])


def test_large_shared_memory_is_requested(package):
    library = stand_in.Library(package)
    driver = Driver("cuda", 0, library)
    row = package.rows[0]
    driver.load(package.read(row.file), row.entry, 48 << 10)
    assert library.asked == []
    driver.load(package.read(row.file), row.entry, 100_000)
    assert library.asked == [(row.kernel, 8, 100_000)]
    with pytest.raises(PlaceError, match="cuModuleLoadData failed"):
        driver.load(b"no code", row.entry, 0)


def test_module_without_kernels_needs_no_triton(package):
    source = package.module().source
    left = without_kernels(source)
    assert left.count("\n") == source.count("\n")
    assert "import triton" not in left and "triton.jit" not in left and "import torch" in left
