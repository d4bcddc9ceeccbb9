"""What functions that add a command to the parser need of `argparse`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Protocol

__all__ = ["Subcommands"]


class Subcommands(Protocol):
    """What `ArgumentParser.add_subparsers` returns, a class without a public name."""

    def add_parser(
        self, name: str, *, help: str, description: str, epilog: str = ...
    ) -> ArgumentParser:
        """Add a command by its name; returns its parser."""
        ...
