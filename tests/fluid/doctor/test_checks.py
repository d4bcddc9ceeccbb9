"""What `fluid doctor` sees, and says about what is wrong."""

import builtins
import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluid.cli.main import main
from fluid.doctor import checks
from fluid.doctor.diagnosis import Diagnosis

ROOT = Path(__file__).parents[3]


def problems(check: Callable[[], Iterator[Diagnosis]]) -> dict[str, Diagnosis]:
    """The problems that a check finds, by their subject."""
    return {finding.subject: finding for finding in check() if finding.state == "problem"}


@pytest.mark.parametrize("name", checks.CHECKS)
def test_environment_of_the_tests_has_no_problem(name: str) -> None:
    findings = list(checks.CHECKS[name]())
    assert findings and [each for each in findings if each.state == "problem"] == []


def test_old_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "version", {"numpy": "1.26.4"}.get)
    monkeypatch.setattr(checks, "OLDEST", {"numpy": (2, 0)})
    finding = problems(checks.packages)["numpy"]
    assert finding.seen.startswith("1.26.4 in ") and "2.0 is needed" in finding.seen
    assert finding.advice == "pip install --upgrade 'numpy>=2.0'"


def test_absent_library_is_a_problem_but_llvmlite_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise checks.PackageNotFoundError(name)

    monkeypatch.setattr(checks, "version", absent)
    monkeypatch.setattr(checks, "missing", lambda extra: ["torch"])
    states = {finding.subject: finding.state for finding in checks.packages()}
    assert (states["numpy"], states["llvmlite"], states["extra gpu"]) == ("problem", "note", "note")


def test_package_of_another_project_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "fleet", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert f"imported from {tmp_path}" in problems(checks.packages)["fleet"].seen


def test_level_that_the_cpu_lacks_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CPU", "z80")
    assert "cannot run it" in problems(checks.processor)["FLUID_CPU"].seen


def test_cache_that_others_can_write_to_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    assert "others may write to" in problems(checks.caches)["cache of modules"].seen


def test_file_in_place_of_the_cache_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path / "file"))
    assert "is a file" in problems(checks.caches)["cache"].seen


def test_a_folder_that_even_root_cannot_make_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CACHE", "/proc/x")
    seen = problems(checks.caches)["cache"]
    assert seen.seen.startswith("/proc cannot be written to: ")
    assert seen.advice == "set FLUID_CACHE to a folder of your own"


def test_variables_that_nothing_reads_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not problems(checks.settings)
    monkeypatch.setenv("FLUID_CHACHE", "secret")
    monkeypatch.setenv("FLUID_WEATHER", "rain")
    named = problems(checks.settings)
    assert named["FLUID_CHACHE"].advice == "did you mean FLUID_CACHE?"
    assert "docs/settings.md" in named["FLUID_WEATHER"].advice
    assert "secret" not in str(named)


def test_cache_that_is_off_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    (finding,) = checks.caches()
    assert (finding.state, finding.advice) == ("note", "unset FLUID_CACHE_SIZE")


def diagnoses(check: Callable[[], Iterator[Diagnosis]]) -> dict[str, Diagnosis]:
    """Everything that a check sees, by subject."""
    return {each.subject: each for each in check()}


def test_loopback_that_is_down_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert problems(checks.jobs)["ports"].seen == "127.0.0.1: Network is unreachable"


def test_little_shared_memory_a_full_disk_and_an_unknown_name_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    seen = diagnoses(checks.jobs) | diagnoses(checks.caches)
    assert seen["shared memory"].state == seen["host name"].state == "note"
    assert "nobody.invalid does not resolve" in seen["host name"].seen
    assert "1 MiB free, less than the limit" in seen["disk of the cache"].seen


def test_gpu_without_its_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    card = SimpleNamespace(read_text=lambda **_: "Model: \t NVIDIA H200\n")
    monkeypatch.setattr(Path, "glob", lambda *_: iter([card]))
    monkeypatch.setattr(builtins, "sorted", list)
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert "cannot open shared object file" in problems(checks.gpus)["libcuda.so.1"].seen


def test_another_paddle_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    seen = diagnoses(checks.packages)["other paddle"]
    assert seen.state == "note" and str(tmp_path) in seen.seen


@pytest.mark.parametrize("name", ["compiler", "runtime"])
def test_a_script_that_hides_a_package_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").touch()
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", "import fluid"], env=environment, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert f"ImportError: fluid needs its own package '{name}', and another one" in done.stderr
    assert done.stderr.count("\n") < 8


@pytest.mark.parametrize("name", ["FLUID_CACHE_SIZE", "FLUID_ORDER", "FLUID_TARGET"])
def test_settings_with_unusable_values_are_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "many")
    assert main(["doctor"]) == 2
    assert f"fluid doctor: {name} is 'many', expected" in capsys.readouterr().err
