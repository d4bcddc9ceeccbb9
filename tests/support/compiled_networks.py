"""Networks compiled for any batch size, with their feeds, fetches and initial state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fluid
import runtime
from compiler import Options
from compiler.driver import Compiled, compile_stages
from compiler.ir.types import Array, from_fluid
from runtime.sizes import LOD, lod_owners_of, name_sizes
from tests.support.nets import timed


@dataclass(frozen=True)
class Subject:
    """A program to compile with its feeds, fetches, and initial state.

    `constant` is true if the state is constant, so that trained batch norms may be folded.
    """

    program: Any
    feed: Mapping[str, Array]
    fetch: str
    state: Mapping[str, Array]
    constant: bool

    def compile(self, options: Options) -> Compiled:
        """Run every stage, for any batch size."""
        return self._compile(options, self._params())

    def load(self, options: Options) -> Loaded:
        """Compile for any batch size and load over a copy of the state."""
        params = self._params()
        compiled = self._compile(options, params)
        executable = runtime.load(compiled.module, runtime.CPUPlace(), params)
        return Loaded(compiled, executable, params)

    def _params(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.state.items()}

    def _compile(self, options: Options, params: dict[str, Array]) -> Compiled:
        variables = {n: self.program.global_block().var(n) for n in self.feed if LOD not in n}
        open_shapes = {n: from_fluid(v.dims, v.element).shape for n, v in variables.items()}
        inputs = {name: array.shape for name, array in self.feed.items()}
        pattern = name_sizes(open_shapes, inputs, lod_owners_of(self.feed))
        return compile_stages(
            self.program, feed=pattern, fetch=[self.fetch], options=options,
            params=params if self.constant else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A compiled subject with its own state."""

    compiled: Compiled
    executable: runtime.Executable
    state: Mapping[str, Array]


def initial_state(recorded: timed.Recorded) -> dict[str, Array]:
    """The persistable arrays after the startup program, by name."""
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(recorded.startup, scope=scope)
    return {name: array.copy() for name, array in scope.arrays().items()}
