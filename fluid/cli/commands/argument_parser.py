"""The parser of command lines: help as it is written, and errors of two lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from compiler.errors import did_you_mean

__all__ = ["ArgumentParser"]


class ArgumentParser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its texts, and whose errors name the command alone.

    The usage of a command with many options is longer than what went wrong.
    """

    def __init__(
        self, prog: str | None = None, description: str | None = None, epilog: str | None = None
    ) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=formatter)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the help is, and exit with 2."""
        message = message.removesuffix(", ...")  # the words after a script are not required
        hint = f"  hint: {self.prog} --help lists the options and has examples"
        self.exit(2, f"{self.prog}: {message}\n{hint}\n")

    def print_help(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, file: TextIO | None = None
    ) -> None:
        """Print the help. Raises OSError, which argparse would ignore."""
        (file or sys.stdout).write(self.format_help())

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse words; exit with 2 at those that no option takes, which the parser of `fluid` would
        report as its own.
        """
        given, unknown = super().parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            self._refuse(unknown)
        return given, unknown

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            hint = 'quote values with spaces, as in "1 2; 3 4"'
            self.error(f"{unknown[0]!r} is a word too many: {hint}")
        name = option.partition("=")[0]
        known = [each for each in self._option_string_actions if each.startswith("--")]
        hint = did_you_mean(name, known)
        self.error(f"there is no option {name}" + (f": {hint}" if hint else ""))
