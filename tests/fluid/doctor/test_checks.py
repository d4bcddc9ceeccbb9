"""What `fluid doctor` sees, and says about what is wrong."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fluid.doctor import checks
from fluid.doctor.diagnosis import Diagnosis


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


def test_cache_that_is_off_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_CACHE_SIZE", "0")
    (finding,) = checks.caches()
    assert (finding.state, finding.advice) == ("note", "unset FLUID_CACHE_SIZE")
