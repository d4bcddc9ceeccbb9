"""The environment variables of processes that a script under `fluid run` starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from compiler.support.settings.fluid import (
    FLUID_RUN_INTERPRETER,
    FLUID_RUN_OPTIONS,
    FLUID_RUN_PYTHON,
)
from compiler.support.settings.systems import PATH, PYTHONPATH

__all__ = ["child_variables"]

FOLDER = Path(__file__).resolve().parent
COMMANDS = ("python", "python3")


def child_variables(cpu: bool = False, force: bool = False) -> dict[str, str]:
    """The variables that let Python processes import paddle as under `fluid run`.

    `cpu` and `force` are the options of `fluid run`. PYTHONPATH has the others too, as entries that
    the start-up file reads: scripts start processes with PATH and PYTHONPATH as their only
    variables. Raises ValueError if a path has a character that separates folders in PATH.
    """
    options = [name for name, is_set in (("cpu", cpu), ("force", force)) if is_set]
    version, environment = sys.implementation.cache_tag, os.path.realpath(sys.prefix)
    own = {
        FLUID_RUN_OPTIONS.name: ",".join(options),
        FLUID_RUN_PYTHON.name: sys.executable,
        FLUID_RUN_INTERPRETER.name: f"{version}={environment}",
    }
    folder = str(FOLDER / "on_path")
    entries = [folder, *(f"{folder}{os.sep}{name}={value}" for name, value in own.items())]
    return {
        PYTHONPATH.name: _prepended(entries, PYTHONPATH.text()),
        PATH.name: _prepended([str(_commands())], PATH.text() or os.defpath),
        **own,
    }


def _commands() -> Path:
    """The folder of `python`; that of this interpreter where shell scripts cannot be run."""
    folder = FOLDER / "commands"
    runs = os.name == "posix" and all(os.access(folder / name, os.X_OK) for name in COMMANDS)
    return folder if runs else Path(sys.executable).parent


def _prepended(entries: list[str], folders: str) -> str:
    """A list of folders that begins with some entries, and has them nowhere else."""
    for entry in entries:
        if os.pathsep in entry:
            raise ValueError(
                f"{entry} cannot be on PATH or PYTHONPATH, as it contains {os.pathsep!r}"
            )
    others = folders.split(os.pathsep) if folders else []
    inside = entries[0] + os.sep
    kept = [each for each in others if each != entries[0] and not each.startswith(inside)]
    return os.pathsep.join([*entries, *kept])
