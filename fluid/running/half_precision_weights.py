"""Half-precision inference by an `Executor`: weights are cast once, until something writes to them.

An Executor does not change parameters, since another program may train them. Values computed from
them ahead of the run (casts to half precision, folded norms) are valid until a variable of the
scope is written. After that the program runs without them and casts in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.per_version import PerVersion
from fluid.framework import Program
from fluid.running.fetched_values import Value
from fluid.running.programs import FluidPrograms, LibraryPrograms
from fluid.running.single_step import changes_state
from runtime import executor as core
from runtime.serving import Library
from runtime.tensors.scope import Scope

__all__ = ["ConstantParamStep"]

Core = core.Executor[Program]


@dataclass
class _Valid:
    """An executor that is valid for one write count of its scope; None once others have written."""

    written: int
    core: Core | None


class ConstantParamStep:
    """Runs programs that change no state as one step, over parameters cast in advance.

    Each has its own executor, which counts as `core` does; where it may not run, `core` does. The
    executors of a scope are stored with the scope.
    """

    def __init__(self, core: Core, programs: FluidPrograms) -> None:
        self._core = core
        self._programs = programs

    def applies(self, program: Program) -> bool:
        """Whether a program changes no state."""
        return not changes_state(program)

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run the step; returns and raises as `runtime.executor.Executor.run`."""
        valid = None if _sets_state(program, feed) else self._executors(scope)[program]
        if valid is not None and valid.written != scope.clock.written:
            valid.core = None
        if valid is None or valid.core is None:
            return self._core.run(program, feed, fetch, scope, on_device)
        values = valid.core.run(program, feed, fetch, scope, on_device)
        valid.written = scope.clock.written  # its compilation may write
        return values

    def cached(self, program: Program, scope: Scope) -> Core | None:
        """The executor that ran the current version of a program last, if it still may."""
        executors = scope.beside.get(self)
        valid = None if executors is None else executors.get(program)
        return None if valid is None else valid.core

    def _executors(self, scope: Scope) -> PerVersion[Program, _Valid]:
        """The executors over the parameters of a scope."""
        executors = scope.beside.get(self)
        if executors is None:
            executors = scope.beside.setdefault(self, PerVersion(partial(self._executor, scope)))
        return executors

    def _executor(self, scope: Scope, program: Program) -> _Valid:
        programs, place = self._programs, self._core.place
        library = Library(programs.compile_over, scope)
        executor = core.Executor(LibraryPrograms(place, programs.user, library), place)
        executor.counters = self._core.counters
        return _Valid(scope.clock.written, executor)


def _sets_state(program: Program, feed: Mapping[str, Array]) -> bool:
    """Whether a persistable variable is fed."""
    variables = program.blocks[0].vars
    return any(variables[name].persistable for name in feed if name in variables)
