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

    `cpu` and `force` are the options of `fluid run`. Raises ValueError if the path of this package
    has a character that separates folders in PATH.
    """
    options = [name for name, is_set in (("cpu", cpu), ("force", force)) if is_set]
    version, environment = sys.implementation.cache_tag, os.path.realpath(sys.prefix)
    return {
        PYTHONPATH.name: prepended(FOLDER / "on_path", PYTHONPATH.text()),
        PATH.name: prepended(_commands(), PATH.text() or os.defpath),
        FLUID_RUN_OPTIONS.name: ",".join(options),
        FLUID_RUN_PYTHON.name: sys.executable,
        FLUID_RUN_INTERPRETER.name: f"{version}:{environment}",
    }


def _commands() -> Path:
    """The folder of `python`; that of this interpreter where shell scripts cannot be run."""
    folder = FOLDER / "commands"
    runs = os.name == "posix" and all(os.access(folder / name, os.X_OK) for name in COMMANDS)
    return folder if runs else Path(sys.executable).parent


def prepended(folder: Path, folders: str) -> str:
    """A list of folders with another one first, and only there. Raises ValueError as above.

    >>> prepended(Path("a"), "") + " " + prepended(Path("a"), "b")[:1]
    'a a'
    """
    text = str(folder)
    if os.pathsep in text:
        raise ValueError(f"{text} cannot be on PATH or PYTHONPATH, as it contains {os.pathsep!r}")
    others = folders.split(os.pathsep) if folders else []
    return os.pathsep.join([text, *(other for other in others if other != text)])
