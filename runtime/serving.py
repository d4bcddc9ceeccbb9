"""Serving: one program that many threads run at once.

What is compiled and the parameters are shared. A run under way has a lane of its own, an executor
with its arenas and bindings, and leaves it to the next one. So there are as many lanes as runs were
ever under way together, whether a server keeps its threads or starts one for each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from threading import BoundedSemaphore, Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import ShapeError
from compiler.ir.types import Array
from runtime.executor import Executor, Program, Signature
from runtime.forks import renew_in_children
from runtime.loader import Params
from runtime.sizes import Pattern
from runtime.tensors.scope import Scope

__all__ = ["Lanes", "Library"]

P = TypeVar("P", bound=Program)

Compile = Callable[[P, Pattern, list[str], Params], Module]


class Library(Generic[P]):
    """Modules that are made once, whichever thread asks first.

    They read the parameters of one scope. What a compilation adds to them, such as folded weights,
    is kept in a scope below it for that module alone, since constants may hold for its sizes only;
    where two modules were given equal arrays they share one.
    """

    def __init__(self, compile: Compile[P], scope: Scope) -> None:
        self._compile = compile
        self._scope = scope
        self.renew_locks()
        renew_in_children(self)
        self._made: dict[Signature, Module | ShapeError] = {}
        self._scopes: dict[str, Scope] = {}

    def renew_locks(self) -> None:
        """Make the lock that a compilation holds, free."""
        self._busy = Lock()

    def __len__(self) -> int:
        """How many modules there are."""
        return len(self._scopes)

    def module(self, program: P, pattern: Pattern, fetch: list[str]) -> Module:
        """The module for a pattern of sizes; what compiling raises, also where it did so before."""
        key = (*pattern.items(), *fetch)
        with self._busy:
            if key not in self._made:
                self._made[key] = self._make(program, pattern, fetch)
            found = self._made[key]
        if isinstance(found, ShapeError):
            raise found.with_traceback(None)
        return found

    def _make(self, program: P, pattern: Pattern, fetch: list[str]) -> Module | ShapeError:
        own = self._scope.new_scope()
        try:
            module = self._compile(program, pattern, fetch, own.arrays())
        except ShapeError as error:
            return error
        self._share(own)
        self._scopes[module.digest] = own
        return module

    def _share(self, own: Scope) -> None:
        """Let a module have the arrays of those made before it where they are equal."""
        mine = own.arrays()
        for name in own.local_var_names():
            others = [scope.arrays()[name] for scope in self._scopes.values() if _has(scope, name)]
            mine[name] = next(
                (each for each in others if np.array_equal(each, mine[name])), mine[name]
            )

    def params(self, module: Module, scope: Scope) -> Params:
        """Where a module of this library finds its state."""
        return self._scopes[module.digest].arrays()

    def nbytes(self) -> int:
        """The bytes of all parameters, with those that compilations added."""
        with self._busy:
            scopes = [self._scope, *self._scopes.values()]
            arrays = [scope.arrays()[name] for scope in scopes for name in scope.arrays()]
        return sum({id(array): array.nbytes for array in arrays}.values())


def _has(scope: Scope, name: str) -> bool:
    return name in scope.local_var_names()


class Lanes(Generic[P]):
    """Runs of one program, each in a lane that no other run is in.

    `lane` makes one; `limit` is how many runs may be under way at once, where others wait for them.
    """

    def __init__(
        self, lane: Callable[[], Executor[P]], program: P, fetch: tuple[str, ...], scope: Scope,
        limit: int | None = None,
    ) -> None:  # fmt: skip
        self._lane = lane
        self._program = program
        self._fetch = fetch
        self._scope = scope
        self._limit = limit
        self._idle: deque[Executor[P]] = deque()
        self._all: WeakSet[Executor[P]] = WeakSet()
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """Make what runs wait for, free."""
        self._room = nullcontext() if self._limit is None else BoundedSemaphore(self._limit)
        self._adding = Lock()

    def run(self, feed: dict[str, Array]) -> list[Any]:
        """What `Executor.run` gives and raises, for a feed of arrays by name."""
        with self._room:
            lane = self._taken()
            try:
                return lane.run(self._program, feed, self._fetch, self._scope)
            finally:
                self._idle.append(lane)

    def _taken(self) -> Executor[P]:
        """The lane that was used last, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            lane = self._lane()
        with self._adding:
            self._all.add(lane)
        return lane

    def release(self) -> None:
        """Let go of the lanes that are idle; the next runs make new ones."""
        self._idle.clear()

    def nbytes(self) -> list[int]:
        """The bytes of the arenas of each lane; waits for runs that are under way."""
        with self._adding:
            lanes = list(self._all)
        return sorted((lane.nbytes() for lane in lanes), reverse=True)
