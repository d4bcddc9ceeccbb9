"""Which code generator a program is compiled with."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

from compiler.codegen.native.host import detected
from compiler.options import Options


def chosen_target(target: str, options: Options) -> str:
    """The target of a compilation: for the CPU the one that the options name, or the default."""
    return target if target == "triton" else options.target or default_target()


@cache
def default_target() -> str:
    """The target of programs on the CPU where none is chosen.

    Native code on Linux, for an x86-64 CPU with AVX2, if llvmlite is installed; else NumPy.
    """
    machine = detected()
    runs = machine is not None and machine.triple.startswith("x86_64") and sys.platform == "linux"
    return "native" if runs and find_spec("llvmlite") is not None else "numpy"
