"""Packages for CPUs: machine code of several levels, chosen and loaded without llvmlite."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluid
from compiler.codegen.module import without_ir
from compiler.codegen.native.host import host_machine, supported
from compiler.errors import CompileError
from fluid.cli.main import main
from fluid.inference.packages import load_compiled
from runtime.native.archive import archive, unpacked
from runtime.native.elf import BadObject
from runtime.native.package import fitting, on_cpu
from runtime.packages import PackageError, read_package
from tests.fluid.saving.test_reference_models import recorded

pytest.importorskip("llvmlite")

MODEL = Path(__file__).resolve().parents[2] / "golden" / "inference" / "digits_mlp__separate"
ALL = "cpu:avx2,cpu:avx512,cpu:neon"
FEED = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)

HERE = [each for each in supported() if each in ("avx2", "avx512", "neon")]
pytestmark = pytest.mark.skipif(not HERE, reason="there is no native code for this CPU")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("package")
    assert main(["compile", str(MODEL), "--target", ALL, "-o", str(out)]) == 0
    return out


@pytest.fixture
def package(folder, tmp_path):
    return read_package(Path(shutil.copytree(folder, tmp_path / "package")))


@pytest.fixture(scope="module")
def expected():
    return fluid.create_predictor(str(MODEL)).run([FEED])[0]


def test_a_package_holds_a_module_and_objects_for_each_level(folder):
    package = read_package(folder)
    assert package.cpus == ("avx2", "avx512", "neon")
    for level in package.cpus:
        module = package.module(level)
        assert (module.target, module.machine, module.kernels_ir) == ("native", level, {})
        objects = unpacked(package.read(f"{level}/kernels.a"))
        assert "executor" in objects and all(each[:4] == b"\x7fELF" for each in objects.values())
        assert "define void @" in (folder / level / "module.py").read_text()


@pytest.mark.parametrize("level", HERE)
def test_every_level_of_this_cpu_runs(folder, level, expected, monkeypatch):
    monkeypatch.setenv("FLUID_CPU", level)
    predictor = load_compiled(folder)
    assert predictor._programs.ready.module.machine == level
    np.testing.assert_allclose(predictor.run([FEED])[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predictor.run([FEED[:1]])[0], expected[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["resnet_cifar8", "sentiment_conv", "tagger_gru_crf"])
def test_models_equal_the_recorded_reference(case, tmp_path, capsys):
    model = MODEL.with_name(f"{case}__separate")
    assert main(["compile", str(model), "-o", str(tmp_path)]) == 0
    feed, expected = recorded(case)
    (actual,) = load_compiled(tmp_path).run(feed)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-4, atol=1e-5)
    capsys.readouterr()


SCRIPT = """
import sys
sys.modules["llvmlite"] = None
import numpy as np
from fluid.inference.packages import load_compiled
predictor = load_compiled(sys.argv[1])
np.save(sys.argv[2], predictor.run([np.load(sys.argv[3])])[0])
assert not any(name.startswith(("compiler.driver", "networkx")) for name in sys.modules)
"""


def test_a_package_runs_without_llvmlite(folder, tmp_path, expected):
    np.save(tmp_path / "x.npy", FEED)
    names = [str(folder), str(tmp_path / "y.npy"), str(tmp_path / "x.npy")]
    subprocess.run([sys.executable, "-c", SCRIPT, *names], check=True)
    actual = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_fluid_infer_runs_and_describes_a_package(folder, tmp_path, capsys, expected):
    np.save(tmp_path / "x.npy", FEED)
    inputs = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
    assert main(["infer", str(folder), *inputs]) == 0
    (actual,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    capsys.readouterr()
    assert main(["infer", str(folder), "--describe"]) == 0
    assert "a package, for CPUs with avx2, avx512, neon, " in capsys.readouterr().out


def test_without_a_target_code_is_for_this_cpu(tmp_path, capsys):
    assert main(["compile", str(MODEL), "-o", str(tmp_path / "a")]) == 0
    assert main(["compile", str(MODEL), "--target", "native", "-o", str(tmp_path / "b")]) == 0
    for name in "ab":
        assert read_package(tmp_path / name).cpus == (host_machine().name,)
    assert main(["compile", str(MODEL), "--target", "numpy", "-o", str(tmp_path / "c")]) == 0
    assert read_package(tmp_path / "c").cpus == ()
    assert "NumPy" in (tmp_path / "c" / "module.py").read_text()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cpu:sse", "'sse' is not a known level of CPUs"),
        ("cpu:avx2,cuda:90", "a package is for CPUs or for GPUs"),
        ("cpu", "'cpu' is not a known"),
    ],
)
def test_an_unknown_target_is_an_error(target, message, tmp_path, capsys):
    assert main(["compile", str(MODEL), "--target", target, "-o", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_the_table_shows_the_kernels_of_each_level(tmp_path, capsys):
    inputs = ["compile", str(MODEL), "--target", "cpu:avx2,cpu:neon", "-o", str(tmp_path), "--json"]
    assert main(inputs) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["cpu"] for row in rows} == {"avx2", "neon"}
    assert all(row["bytes"] > 0 for row in rows) and sum(row["calls"] for row in rows) > 2
    assert sum(row["operations"] for row in rows) > 0


def test_parameters_may_come_from_elsewhere(tmp_path, expected):
    assert main(["compile", str(MODEL), "--without-params", "-o", str(tmp_path)]) == 0
    with pytest.raises(CompileError, match="has no parameter"):
        load_compiled(tmp_path)


@pytest.mark.parametrize("name", ["module.py", "kernels.a"])
def test_a_file_that_was_changed_is_reported(package, name):
    level = HERE[0]
    path = package.folder / level / name
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)
    with pytest.raises(PackageError, match="was changed since"):
        on_cpu(package, {})
    path.write_bytes(held + b" ")
    with pytest.raises(PackageError, match=r"has \d+ bytes, not the"):
        on_cpu(package, {})
    path.unlink()
    with pytest.raises(PackageError, match="is missing"):
        on_cpu(package, {})


@pytest.mark.parametrize("cpus", [["avx2", "sse"], ["../avx2"], [1], 3, "a/b"])
def test_a_manifest_with_wrong_levels(package, cpus):
    path = package.folder / "kernels.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cpus": cpus}))
    with pytest.raises(PackageError, match="is not a valid list of kernels"):
        read_package(package.folder)


def test_a_level_that_is_not_there_reports_what_there_is():
    assert fitting(["avx512", "avx2"], ["avx2"]) == "avx2"
    with pytest.raises(PackageError, match="code for avx512; this CPU has avx2"):
        fitting(["avx512"], ["avx2"])
    with pytest.raises(PackageError, match="code for avx2, neon; this CPU has none of the known"):
        fitting(["avx2", "neon"], [])
    with pytest.raises(PackageError, match="code for avx2; FLUID_CPU is 'avx512'"):
        fitting(["avx2"], ["avx512", "avx2"], "avx512")


def test_another_system_reports_what_there_is(package, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PackageError, match=r"\(avx2, avx512, neon\) is loaded on Linux only"):
        on_cpu(package)


def test_a_module_without_kernels_keeps_its_source():
    assert without_ir("a\nKERNELS_IR = {\n}\nb") == "a\nKERNELS_IR = {\n}\nb"
    source = "a\nKERNELS_IR = {\n    'k': '''\ndefine\n}\n''',\n}\nb"
    assert without_ir(source) == "a\nKERNELS_IR = {}\nb"


def test_archives_of_any_sizes(tmp_path):
    objects = {"a" * 200: b"1", "b": b"", "c.o": b"12", "executor": bytes(range(256))}
    data = archive(objects)
    assert unpacked(data) == objects
    if shutil.which("ar"):
        (tmp_path / "kernels.a").write_bytes(data)
        listed = subprocess.run(["ar", "t", tmp_path / "kernels.a"], capture_output=True, text=True)
        assert listed.stdout.split() == [*objects]


def test_archives_that_are_damaged():
    data = archive({"kernel": b"12345678", "other": b"1"})
    for size in range(len(data) - 1):  # the last byte only aligns
        try:
            assert len(unpacked(data[:size])) < 2
        except BadObject:
            continue
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x11
        try:
            unpacked(bytes(changed))
        except BadObject:
            continue
