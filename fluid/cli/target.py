"""`--target` of commands that run programs: NumPy, or machine code for this CPU."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compiler.codegen.native.host import host_machine
from compiler.errors import did_you_mean
from fluid.cli.model import CommandError
from fluid.running.targets import default_target
from runtime.native.build import llvm_version

__all__ = ["VARIABLE", "add_target", "on_target", "use_target"]

VARIABLE = "FLUID_TARGET"
"""The environment variable that `--target` sets."""
KNOWN = ("numpy", "native")

HELP = f"""\
how programs run on the CPU: numpy calls NumPy, in Python that can be read; native compiles machine
code for this CPU with LLVM, usually several times faster (default: {VARIABLE}, or
{default_target()})"""


def add_target(command: Any) -> None:
    """Add `--target` to a command."""
    command.add_argument("--target", type=target, metavar="{numpy,native}", help=HELP)


def target(name: str) -> str:
    """Parse `--target`; raises ArgumentTypeError for an unknown name.

    >>> target("native")
    'native'
    """
    if name not in KNOWN:
        hint = did_you_mean(name, KNOWN)
        expected = f"expected {' or '.join(KNOWN)}"
        raise argparse.ArgumentTypeError(
            f"{name!r} is no target, {expected}" + f"; {hint}" * bool(hint)
        )
    return name


def use_target(name: str | None) -> None:
    """Compile for a target from now on, also in processes that this one starts; None changes
    nothing.

    Raises CommandError if native code needs llvmlite and it is not installed, and CompileError if
    there is none for this CPU.
    """
    if name == "native":
        host_machine()
        if not llvm_version():
            raise CommandError(
                "--target native compiles with LLVM, which the package llvmlite brings: "
                "pip install llvmlite, or take --target numpy"
            )
    if name is not None:
        os.environ[VARIABLE] = name


@contextmanager
def on_target(name: str | None) -> Iterator[None]:
    """Compile for a target within a `with` block; raises as `use_target`."""
    before = os.environ.get(VARIABLE)
    use_target(name)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
