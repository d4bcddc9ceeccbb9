"""The interface of what runs a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from compiler.ir.types import Array
from fluid.framework import Program
from runtime.tensors.scope import Scope

__all__ = ["Route", "Run"]

Run = Callable[..., list[Any]]
"""`Executor.run`."""


class Route(Protocol):
    """Runs the programs that it applies to."""

    def applies(self, program: Program) -> bool:
        """Whether this is how a program runs, unless an earlier route applies to it."""
        ...

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> Sequence[Any]:
        """Run a program once; returns the values of `fetch`: arrays, LoDTensors, lists of arrays.

        `feed` has arrays and their LoD offsets by name.
        """
        ...
