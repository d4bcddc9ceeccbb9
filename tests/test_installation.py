"""A plain installation is small: what it brings, what its extras add, what make installs for whom."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from compiler.support.extras import MODULES
from fluid.doctor.checks import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    """The packages that requirements name, without versions."""
    return {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_a_plain_installation_is_numpy_networkx_and_what_scripts_import() -> None:
    assert names(PROJECT["dependencies"]) == {"networkx", "numpy", "six"}


def test_extras_bring_devices_and_other_processes() -> None:
    extras = {name: names(each) for name, each in PROJECT["optional-dependencies"].items()}
    assert extras["native"] == {"llvmlite", "ml_dtypes"}
    assert extras["gpu"] == {"torch", "triton"}
    assert extras["dist"] == {"grpcio", "torch"}
    assert "fluid-compiler[native,gpu,dist,onnx,slim]" in PROJECT["optional-dependencies"]["dev"]


def test_a_package_carries_every_file_it_reads() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for package in ("compiler", "runtime", "fluid", "fleet"):
        patterns = settings["package-data"].get(package, [])
        carried = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
        result = {path for path in (ROOT / package).rglob("*.*") if path.is_file()}
        assert {path for path in result if path.suffix not in (".py", ".pyc")} <= carried
        assert ROOT / package / "py.typed" in carried


def test_extras_are_those_that_errors_name() -> None:
    packages = {name: names(each) for name, each in PROJECT["optional-dependencies"].items()}
    for extra, modules in MODULES.items():
        assert {PACKAGES.get(name, name).lower() for name in modules} == packages[extra]


@pytest.mark.parametrize("file", ["cpu.txt", "gpu.txt"])
def test_every_dependency_has_a_version_that_was_tested(file: str) -> None:
    pinned = names((ROOT / "constraints" / file).read_text("utf-8").splitlines())
    extras = PROJECT["optional-dependencies"].values()
    wanted = names([*PROJECT["dependencies"], *(each for extra in extras for each in extra)])
    known = {name.lower().replace("_", "-") for name in pinned}
    assert {name.lower().replace("_", "-") for name in wanted} - known == {"fluid-compiler"}


def steps(target: str, folder: Path) -> str:
    """What make would run for a target in a new environment."""
    command = ["make", "--dry-run", target, f"VENV={folder / 'new'}"]
    return subprocess.check_output(command, cwd=ROOT, text=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_installs_what_a_target_needs(tmp_path: Path) -> None:
    demo, test = steps("demo", tmp_path), steps("test", tmp_path)
    assert "-e '.[native]'" in demo
    assert not re.search(r"\btorch|triton|\[dev\]", demo)
    assert re.search(r"pip install .*torch .*-e '\.\[dev\]'", test, re.DOTALL)
