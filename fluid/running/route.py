"""The interface of what runs a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from compiler.ir.types import Array
from fluid.framework import Program
from fluid.running.fetched_values import Value
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["Route", "Run", "ProgramRunner"]

Run: TypeAlias = Callable[..., list[LoDTensor]]
"""`Executor.run` with `return_numpy=False`."""


class ProgramRunner(Protocol):
    """Runs programs."""

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run a program once; returns the values of `fetch`.

        `feed` has arrays and their LoD offsets by name. With `on_device`, elements of
        large values from a GPU may stay there, in LoDTensors.
        """
        ...


class Route(ProgramRunner, Protocol):
    """Runs the programs that it applies to."""

    def applies(self, program: Program) -> bool:
        """Whether this is how a program runs, unless an earlier route applies to it."""
        ...
