"""`fluid doctor` prints a report, `fluid cache` shows and empties caches."""

import json
from pathlib import Path

import pytest

from fluid.cli.main import main
from fluid.doctor import command
from fluid.doctor.diagnosis import Diagnosis

DIGEST = "0123456789abcdef" * 4
ENTRY = f"{DIGEST}.json"
DRAFT = ".draft-0123456789abcdef"


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One check that sees something old and something good."""
    old = Diagnosis("numpy", "1.26", "problem", "pip install numpy")
    monkeypatch.setattr(command, "CHECKS", {"packages": lambda: [old, Diagnosis("Python", "3.11")]})


def test_problem_comes_with_advice_and_exit_code_1(
    checked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "→ pip install numpy" in output and "1 problem (numpy)" in output


def test_report_as_json(checked: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["state"] for finding in report["packages"]] == ["problem", "ok"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of 2 KiB of modules and 1 KiB of native code."""
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))
    for kind, name, size in (("modules", ENTRY, 2048), ("native", f"{DIGEST}.o", 1024)):
        (tmp_path / kind).mkdir(mode=0o700)
        (tmp_path / kind / name).write_bytes(bytes(size))
    return tmp_path


def test_sizes_of_caches_are_shown(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{cache}/modules: 2 KiB\n{cache}/native: 1 KiB\n"


def test_one_cache_is_emptied(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear", "modules"]) == 0
    assert capsys.readouterr().out == f"{cache}/modules: 2 KiB removed\n"
    assert list((cache / "modules").iterdir()) == []
    assert (cache / "native" / f"{DIGEST}.o").exists()


def test_only_entries_are_removed_and_no_link_is_followed(cache: Path, tmp_path: Path) -> None:
    others = "notes.txt", f"{ENTRY}.backup", f"{DIGEST}.o"
    arrays = [
        f"{DIGEST}{each}.arrays{about}" for each in ("", ".prepared") for about in ("", ".json")
    ]
    for name in (DRAFT, *arrays, *others):
        (cache / "modules" / name).touch()
    (cache / "kernels").symlink_to(cache / "native")
    assert main(["cache", "clear", "modules"]) == 0
    assert main(["cache", "clear", "kernels"]) == 2
    assert sorted(each.name for each in (cache / "modules").iterdir()) == sorted(others)
    assert (cache / "native" / f"{DIGEST}.o").exists()


def test_unknown_cache_is_an_error(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear", "module"]) == 2
    assert "did you mean 'modules'" in capsys.readouterr().err


def test_file_in_place_of_the_cache_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        monkeypatch.setenv("FLUID_CACHE", str(tmp_path / place))
        assert main(["cache"]) == main(["cache", "clear"]) == 2
        message = f"fluid cache: {tmp_path / 'file'} is a file, not a folder: set FLUID_CACHE to"
        assert message in capsys.readouterr().err
