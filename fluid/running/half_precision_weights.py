"""Half-precision inference by an `Executor`: weights are cast once, until something writes to them.

An Executor does not change parameters, since another program may train them. Values computed from
them ahead of the run (casts to half precision, folded norms) are valid until a variable of the
scope is written. After that the program runs without them and casts in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from compiler.ir.program import OpDesc
from compiler.support.per_version import PerVersion
from fluid.framework import Program
from runtime import executor as core
from runtime.serving import Compile, Library
from runtime.tensors.scope import Scope

__all__ = ["ConstantParamExecutors", "changes_state"]

Core = core.Executor[Program]

_KEEPING = ("is_test", "use_global_stats")
"""Attributes with which an op does not update the running statistics among its outputs."""


def changes_state(program: Program) -> bool:
    """Whether a run changes persistable variables."""
    kept = {var.name for var in program.all_vars() if var.persistable}
    ops = (op for block in program.blocks for op in block.ops)
    return any(not kept.isdisjoint(op.writes()) for op in ops if _writes_values(op))


def _writes_values(op: OpDesc) -> bool:
    return op.type not in ("feed", "fetch") and not any(op.attrs.get(name) for name in _KEEPING)


@dataclass
class _Valid:
    """An executor that is valid for one write count of its scope; None once others have written."""

    written: int
    core: Core | None


class ConstantParamExecutors:
    """Executors of programs that change no state, each over parameters cast in advance.

    `compile` receives the parameters that it may read; `load` makes an executor from a module. The
    cache of a scope is stored with the scope.
    """

    def __init__(self, compile: Compile[Program], load: Callable[[Library[Program]], Core]) -> None:
        self._compile = compile
        self._load = load

    def core(self, program: Program, scope: Scope) -> Core | None:
        """The executor of a program that changes no state; None if others write to
        what it reads.
        """
        valid = self._executors(scope)[program]
        if valid.written != scope.clock.written:
            valid.core = None
        return valid.core

    def _executors(self, scope: Scope) -> PerVersion[Program, _Valid]:
        """The executors over the parameters of a scope."""
        executors = scope.beside.get(self)
        if executors is None:
            executors = scope.beside.setdefault(self, PerVersion(partial(self._new, scope)))
        return executors

    def _new(self, scope: Scope, program: Program) -> _Valid:
        return _Valid(scope.clock.written, self._load(Library(self._compile, scope)))

    def settle(self, program: Program, scope: Scope) -> None:
        """Accept the current write count of a scope, after one of these programs
        ran and compiled.
        """
        self._executors(scope)[program].written = scope.clock.written

    def cached(self, program: Program, scope: Scope) -> Core | None:
        """The executor that ran the current version of a program last, if it still may."""
        executors = scope.beside.get(self)
        valid = None if executors is None else executors.get(program)
        return None if valid is None else valid.core
