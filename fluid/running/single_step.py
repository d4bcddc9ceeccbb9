"""Programs that run as one compiled step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence

from compiler.ir.program import OpDesc
from compiler.ir.types import Array
from fluid.framework import Program
from fluid.running.fetched_values import Value
from runtime import executor as core
from runtime.tensors.scope import Scope

__all__ = ["NoOps", "SingleStep", "changed_state", "changes_state"]

_KEEPING = ("is_test", "use_global_stats")
"""Attributes with which an op does not update the running statistics among its outputs."""


def changes_state(program: Program) -> bool:
    """Whether a run changes persistable variables."""
    return any(True for _ in _changed(program))


def changed_state(program: Program) -> frozenset[str]:
    """Names of the persistable variables that a run changes."""
    return frozenset(_changed(program))


def _changed(program: Program) -> Iterator[str]:
    state = {var.name for var in program.all_vars() if var.persistable}
    for op in (op for block in program.blocks for op in block.ops):
        if _writes_values(op):
            yield from state.intersection(op.writes())


def _writes_values(op: OpDesc) -> bool:
    return op.type not in ("feed", "fetch") and not any(op.attrs.get(name) for name in _KEEPING)


class SingleStep:
    """Runs programs as one step: those that change state, or those that do not."""

    def __init__(self, core: core.Executor[Program], changes: bool) -> None:
        self._core = core
        self._changes = changes

    def applies(self, program: Program) -> bool:
        """Whether a program changes state, or does not."""
        return changes_state(program) == self._changes

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run the step; returns and raises as `runtime.executor.Executor.run`."""
        try:
            return self._core.run(program, feed, fetch, scope, on_device)
        finally:
            scope.clock.written += self._changes  # a step that was interrupted may have written


class NoOps:
    """Runs programs without ops, with a warning."""

    def __init__(self, core: core.Executor[Program]) -> None:
        self._core = core

    def applies(self, program: Program) -> bool:
        """Whether a program has neither ops nor readers."""
        return not program.blocks[0].ops and not program.readers

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Warn at the user's line; returns what is fed or state, as a step does."""
        what = "the program has no ops: were its layers added to another one?"
        warnings.warn(what, stacklevel=4)
        return self._core.run(program, feed, fetch, scope, on_device)
