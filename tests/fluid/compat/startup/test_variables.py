"""Environment variables of processes that a script under `fluid run` starts."""

import os
from pathlib import Path

import pytest

from fluid.compat.startup import variables


def test_folders_come_first_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}")
    for _ in range(2):
        result = variables.child_variables(cpu=True)
        monkeypatch.setenv("PYTHONPATH", result["PYTHONPATH"])
    first, *rest = result["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file() and rest[3:] == ["lib", ""]
    assert result["FLUID_RUN_OPTIONS"] == "cpu"
    commands = Path(result["PATH"].split(os.pathsep)[0])
    assert {path.name for path in commands.iterdir()} == {"python", "python3"}


def test_commands_that_cannot_run_are_those_of_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(variables.sys, "executable", "/opt/bin/python")
    assert variables.child_variables()["PATH"].startswith(f"/opt/bin{os.pathsep}")


def test_a_path_with_a_separator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "FOLDER", Path(f"a{os.pathsep}b"))
    with pytest.raises(ValueError, match="cannot be on PATH or PYTHONPATH, as it contains"):
        variables.child_variables()
