"""Inference in two bytes by an `Executor`: weights are cast once, while nothing writes to them.

An Executor keeps parameters as they are, since another program may train them. So what is computed
of them ahead, casts to two bytes and folded norms, holds until a value of the scope is written. A
program after which that has happened goes on in the ordinary way and casts in every run.
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

__all__ = ["Lent", "changes_state"]

Core = core.Executor[Program]

_KEEPING = ("is_test", "use_global_stats")
"""Attributes with which an op leaves the running statistics among its outputs as they are."""


def changes_state(program: Program) -> bool:
    """Whether a run leaves other state behind than it found."""
    kept = {var.name for var in program.all_vars() if var.persistable}
    ops = (op for block in program.blocks for op in block.ops)
    return any(not kept.isdisjoint(op.writes()) for op in ops if _writes_values(op))


def _writes_values(op: OpDesc) -> bool:
    return op.type not in ("feed", "fetch") and not any(op.attrs.get(name) for name in _KEEPING)


@dataclass
class _Known:
    """What runs one version of a program, made when so much had been written to its scope."""

    version: int
    written: int
    core: Core | None


class Lent:
    """The executors of programs that change no state, each over parameters cast ahead.

    `compile` is given the parameters that it may read; `load` makes an executor of a library. What
    is kept for a scope is kept with it.
    """

    def __init__(self, compile: Compile[Program], load: Callable[[Library[Program]], Core]) -> None:
        self._compile = compile
        self._load = load

    def core(self, program: Program, scope: Scope) -> Core | None:
        """What runs a program that changes no state; None where others change what it reads."""
        programs = scope.beside.setdefault(self, WeakKeyDictionary[Program, _Known]())
        known: _Known | None = programs.get(program)
        if known is None or known.version != program.version:
            made = self._load(Library(self._compile, scope))
            known = programs[program] = _Known(program.version, scope.clock.written, made)
        if known.written != scope.clock.written:
            known.core = None
        return known.core

    def settle(self, program: Program, scope: Scope) -> None:
        """What was written to a scope by now is known: a program of these ran, and compiled."""
        scope.beside[self][program].written = scope.clock.written

    def known(self, program: Program, scope: Scope) -> Core | None:
        """What ran a program last, if it was one of these."""
        found: _Known | None = scope.beside.get(self, {}).get(program)
        return found.core if found is not None and found.version == program.version else None
