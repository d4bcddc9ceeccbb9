"""Serving: one program that many threads run concurrently.

Compiled code and parameters are shared. Each run in progress has its own lane, an executor with its
arenas and bindings, and leaves it to a later run. So there are as many lanes as runs were ever in
progress at once, whether a server keeps its threads or starts one for each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from threading import BoundedSemaphore, Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import ShapeError
from compiler.ir.types import Array
from compiler.support.per_version import Versioned
from compiler.support.shared_arrays import SharedArrays
from runtime.executor import Executor, Signature
from runtime.forks import renew_in_children
from runtime.loader import Params
from runtime.sizes import Pattern
from runtime.tensors.scope import Scope

__all__ = ["Lanes", "Library"]

P = TypeVar("P", bound=Versioned)

Compile = Callable[[P, Pattern, list[str], Params], Module]


class Library(Generic[P]):
    """Modules that are compiled once, by the first thread that requests them.

    They read the parameters of one scope. Parameters added by a compilation, such as folded
    weights, are stored in a child scope for that module only, since constants may be valid for its
    sizes only; modules with equal arrays share one.
    """

    def __init__(self, compile: Compile[P], scope: Scope) -> None:
        self._compile = compile
        self._scope = scope
        self.renew_locks()
        renew_in_children(self)
        self._made: dict[Signature, Module | ShapeError] = {}
        self._scopes: dict[str, Scope] = {}
        self._unfilled: set[int] = set()  # of arrays in the scopes, which keep them

    def renew_locks(self) -> None:
        """Replace the lock held by a compilation with a free one."""
        self._busy = Lock()

    def __len__(self) -> int:
        """The number of modules."""
        return len(self._scopes)

    def module(self, program: P, pattern: Pattern, fetch: list[str]) -> Module:
        """Return the module for a shape signature; raises what compiling raises, also when
        cached.
        """
        key = (*pattern.items(), *fetch)
        with self._busy:
            if key not in self._made:
                self._made[key] = self._make(program, pattern, fetch)
            module = self._made[key]
        if isinstance(module, ShapeError):
            raise module.with_traceback(None)
        return module

    def _make(self, program: P, pattern: Pattern, fetch: list[str]) -> Module | ShapeError:
        own = self._scope.new_scope()
        try:
            module = self._compile(program, pattern, fetch, own.arrays().tracked())
        except ShapeError as error:
            return error
        unfilled = module.prepared.unfilled if module.prepared else {}
        self._share(own, unfilled)
        self._scopes[module.digest] = own
        self._unfilled |= {id(array) for array in unfilled.values()}
        return module if module.prepared else replace(module, prepared=SharedArrays())

    def _share(self, own: Scope, unfilled: Mapping[str, Array]) -> None:
        """Replace arrays of a module by equal ones of earlier modules, if both have values."""
        mine = own.arrays()
        for name in own.local_var_names():
            if name in unfilled:
                continue
            others = [scope.arrays()[name] for scope in self._scopes.values() if _has(scope, name)]
            others = [array for array in others if id(array) not in self._unfilled]
            mine[name] = next(
                (array for array in others if np.array_equal(array, mine[name])), mine[name]
            )

    def params(self, module: Module, scope: Scope) -> Params:
        """The state of a module of this library."""
        return self._scopes[module.digest].arrays().tracked()

    def nbytes(self) -> int:
        """The size of all parameters in bytes, including those added by compilations."""
        with self._busy:
            scopes = [self._scope, *self._scopes.values()]
            arrays = [array for scope in scopes for array in scope.arrays().tracked().values()]
        return sum({id(array): array.nbytes for array in arrays}.values())


def _has(scope: Scope, name: str) -> bool:
    return name in scope.local_var_names()


class Lanes(Generic[P]):
    """Concurrent runs of one program, each in an exclusive lane.

    `lane` creates one; `limit` is the maximum number of runs at once, beyond which others wait.
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
        """Replace the condition that runs wait for with a free one."""
        self._room = nullcontext() if self._limit is None else BoundedSemaphore(self._limit)
        self._adding = Lock()

    def run(self, feed: dict[str, Array]) -> list[Any]:
        """Run on a feed of arrays by name; returns and raises as `Executor.run`."""
        with self._room:
            lane = self._taken()
            try:
                return lane.run(self._program, feed, self._fetch, self._scope)
            finally:
                self._idle.append(lane)

    def _taken(self) -> Executor[P]:
        """Take the lane that was used last, or a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            lane = self._lane()
        with self._adding:
            self._all.add(lane)
        return lane

    def release(self) -> None:
        """Drop the idle lanes; the next runs create new ones."""
        self._idle.clear()

    def nbytes(self) -> list[int]:
        """The size of the arenas of each lane in bytes; waits for runs in progress."""
        with self._adding:
            lanes = list(self._all)
        return sorted((lane.nbytes() for lane in lanes), reverse=True)
