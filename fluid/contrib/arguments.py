"""Checks of the arguments of this package's functions."""

from __future__ import annotations

from fluid.framework import Program

__all__ = ["expect_program"]


def expect_program(value: object, function: str) -> None:
    """Raise TypeError, naming the function, for anything but a Program."""
    if not isinstance(value, Program):
        raise TypeError(f"{function} takes a Program, not {type(value).__name__}")
