"""Half-precision inference by an `Executor`: weights are cast once, until something writes to them.

An Executor does not change parameters, since another program may train them. Values computed from
them ahead of the run (casts to half precision, folded norms) are valid until a variable of the
scope is written. After that the program runs without them and casts in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from compiler.ir.program import OpDesc
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
class _Known:
    """The executor of one version of a program, valid for one write count of its scope."""

    version: int
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
        programs = scope.beside.setdefault(self, WeakKeyDictionary[Program, _Known]())
        known: _Known | None = programs.get(program)
        if known is None or known.version != program.version:
            made = self._load(Library(self._compile, scope))
            known = programs[program] = _Known(program.version, scope.clock.written, made)
        if known.written != scope.clock.written:
            known.core = None
        return known.core

    def settle(self, program: Program, scope: Scope) -> None:
        """Accept the current write count of a scope, after one of these programs
        ran and compiled.
        """
        scope.beside[self][program].written = scope.clock.written

    def known(self, program: Program, scope: Scope) -> Core | None:
        """The executor that ran a program last, if cached."""
        found: _Known | None = scope.beside.get(self, {}).get(program)
        return found.core if found is not None and found.version == program.version else None
