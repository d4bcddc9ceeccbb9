"""What an Executor needs of the programs that it runs: how they are compiled and loaded."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from compiler.codegen.module import Module
from compiler.support.per_version import Versioned
from runtime.device import Place
from runtime.feeds import Declared
from runtime.loader import Params
from runtime.profiler import SpanRecorder
from runtime.sizes import Pattern
from runtime.tensors.scope import Arrays, Scope

__all__ = ["LoadableModule", "ProgramSource"]

P = TypeVar("P", bound=Versioned, contravariant=True)

LoadableModule: TypeAlias = tuple[Module, Mapping[str, Any]]
"""A module, and the globals that its source needs."""


class ProgramSource(Protocol[P]):
    """Programs of type P: their declarations, modules, and what the modules are loaded with."""

    def digest(self, program: P) -> str:
        """Return a key of a program's current version; programs of equal keys share modules."""
        ...

    def declared(self, program: P, name: str) -> Declared:
        """Return how a program declares the variable `name`, which is fed."""
        ...

    def compile(self, program: P, feed: Pattern, fetch: list[str]) -> Module:
        """Compile a program for a shape signature of its feeds, and the names to fetch.

        Raises ShapeError if the program does not fit the signature, and other CompileErrors.
        """
        ...

    def params(self, module: Module, scope: Scope) -> Params:
        """Return the state of a module that runs in a scope; it must not keep the scope alive.

        By default that is the arrays of the scope.
        """
        return Arrays(cast(Scope, weakref.proxy(scope)))

    def globals(self, program: P, scope: Scope) -> Mapping[str, Any]:
        """Return objects that a program's code uses in a scope, by name. By default none."""
        return {}

    def loadable(self, module: Module, place: Place) -> LoadableModule:
        """Return a module as it is loaded on a place, and globals for its kernels.

        By default the module itself and none. Raises CompileError for kernels that do not compile.
        """
        return module, {}

    def recorder(self) -> SpanRecorder | None:
        """Return the recorder of the times of steps; None, the default, if none are recorded."""
        return None
