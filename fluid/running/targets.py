"""Which code generator a program is compiled with."""

from __future__ import annotations

from compiler.options import Options

DEFAULT = "numpy"
"""The target of programs on the CPU where none is chosen."""


def chosen_target(target: str, options: Options) -> str:
    """The target of a compilation: for the CPU the one that the options name, or the default."""
    return target if target == "triton" else options.target or DEFAULT
