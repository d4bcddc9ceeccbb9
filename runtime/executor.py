"""Executor: compiles and runs programs on feeds, and caches all compiled and bound code.

A run with known shapes costs a look-up. Otherwise the dynamic dims of the feeds get names according
to which are equal, a program is compiled once per such shape signature, and new sizes are only
bound. Cache entries belong to a version of a program and to a scope, and are dropped with either.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Generic, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import CompileError, ShapeError
from compiler.ir.types import Array
from compiler.support.per_version import PerVersion, Versioned
from runtime.binding import check_shapes
from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.errors import NotInitialized, StepError
from runtime.feeds import Declared, Fed, compare_feeds
from runtime.fetch_layout import Layout
from runtime.forks import renew_in_children
from runtime.gpu.cuda import device_of, waiter
from runtime.loader import Counters, Executable, Params, load
from runtime.profiler import Recorder
from runtime.sizes import LOD, Pattern, lod_owners_of
from runtime.tensors.scope import Arrays, Scope

MAX_PLANS = 1024
"""Maximum number of plans cached for a program and a scope; past it all are dropped."""

MAX_MODULES = 256
"""Maximum number of modules cached by an Executor; past it all are dropped."""

Signature: TypeAlias = tuple[object, ...]


P = TypeVar("P", bound=Versioned)
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The plan of one kind of run: which feeds are inputs, which set state, which results are
    fetched.
    """

    executable: Executable
    feeds: tuple[str, ...]
    kept: tuple[str, ...]
    layout: Layout


@dataclass
class Loaded:
    """Everything loaded for a scope: one Executable per Module, one plan per kind of run."""

    executables: dict[Signature, Executable] = field(default_factory=dict[Signature, Executable])
    plans: dict[Signature, Plan] = field(default_factory=dict[Signature, Plan])
    latest: Plan | None = None
    timed: WeakKeyDictionary[Recorder, Loaded] = field(
        default_factory=lambda: WeakKeyDictionary[Recorder, Loaded]()
    )


class Compiled:
    """Everything compiled from one version of a program; `digest` identifies that version."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.scopes: WeakKeyDictionary[Scope, Loaded] = WeakKeyDictionary()


def borrowed(module: Module, scope: Scope) -> Params:
    """The arrays of a scope, without keeping the scope alive: caches of a scope must not."""
    return Arrays(cast(Scope, weakref.proxy(scope)))


Coded: TypeAlias = tuple[Module, Mapping[str, Any]]
"""A module, and extra globals of its code."""


class Executor(Generic[P]):
    """Runs programs on one place.

    `compile` builds a Module from a program, the shape signature of its feeds and the names to
    fetch; `declare` returns what a program declares of a name that is fed; `digest` is equal for
    equal programs, so that a clone is not compiled again; `names` are the extra globals of a
    program's code when it runs in a scope; `recorder` returns the recorder of step times, or None;
    `params` returns the state of a module that runs in a scope; `code` a module as it is loaded,
    and the globals that its code needs.
    """

    def __init__(
        self,
        compile: Callable[[P, Pattern, list[str]], Module],
        declare: Callable[[P, str], Declared],
        digest: Callable[[P], str],
        place: Place | None = None,
        names: Callable[[P, Scope], Mapping[str, Any]] = lambda _program, _scope: {},
        recorder: Callable[[], Recorder | None] = lambda: None,
        params: Callable[[Module, Scope], Params] = borrowed,
        code: Callable[[Module, Place], Coded] = lambda module, _: (module, {}),
    ) -> None:
        self.place = place or CPUPlace()
        self.counters = Counters()
        self._compile = compile
        self._declare = declare
        self._names = names
        self._recorder = recorder
        self._params = params
        self._code = code
        self.renew_locks()
        renew_in_children(self)
        self._modules: dict[Signature, Module] = {}
        self._unfit: dict[Signature, None] = {}
        self._programs: PerVersion[P, Compiled]
        self._programs = PerVersion(lambda program: Compiled(digest(program)))

    def renew_locks(self) -> None:
        """Replace the lock held by steps with a free one; called in the child of a fork."""
        self._busy = RLock()

    def run(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> list[Any]:
        """Run a program once, with its state in `scope`; return copies of the fetches, in order.

        The LoD offsets of a feed `x` with sequences are fed as `x@LOD0`, …; a fetch is an array, a
        LoDTensor if it has LoD, or a list of arrays for a tensor array. Threads wait for each
        other: the steps of a program share their memory. Raises FeedError for a feed of the wrong
        dtype, ShapeError for one of the wrong shape, and whatever compiling, loading and the step
        raise.
        """
        with self._busy:
            return self._run(program, feed, fetch, scope)

    def _run(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> list[Any]:
        loaded = self._loaded(program, scope)
        plans = loaded.plans
        kinds = [(name, array.shape, array.dtype) for name, array in feed.items()]
        lod_owners = _lod_owners(feed)
        signature = (fetch, *kinds, *lod_owners.items()) if lod_owners else (fetch, *kinds)
        plan = plans.get(signature)
        if plan is None:
            plan = self._plan(program, feed, fetch, scope, lod_owners)
            _remember(plans, signature, plan, MAX_PLANS)
        loaded.latest = plan
        return self._step(program, plan, feed, fetch, scope)

    def _step(
        self, program: P, plan: Plan, feed: Mapping[str, Array], fetch: tuple[str, ...],
        scope: Scope,
    ) -> list[Any]:  # fmt: skip
        for name in plan.kept:
            _keep(scope, name, feed[name])
        try:
            values = plan.executable.run([np.asarray(feed[n], order="C") for n in plan.feeds])
        except StepError:
            self._explain(program, plan, feed, fetch)
            raise
        return plan.layout.fetched(values)

    def module(self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...]) -> Module:
        """Return the module that runs a program on these feeds, for another process to load.

        Nothing is loaded here. Raises what compiling raises, FeedError and ShapeError.
        """
        with self._busy:
            lod_owners = _lod_owners(feed)
            fed = self._fed(program, feed, lod_owners)
            names = list(dict.fromkeys(fetch))
            for pattern in fed.patterns[:-1]:
                with suppress(ShapeError):
                    module = self._module(program, pattern, names)
                    check_shapes(module, fed.exact)
                    return module
            return self._module(program, fed.patterns[-1], names)

    def made(
        self, program: P, scope: Scope, fetch: tuple[str, ...] | None = None
    ) -> tuple[Module, Mapping[str, int]] | None:
        """Return the module that a program last ran as in a scope, and the sizes it was bound to.

        With `fetch`, the last one compiled for these fetches. None if the current version of the
        program has not run.
        """
        with self._busy:
            loaded = self._loaded(program, scope)
            fitting = [plan for key, plan in loaded.plans.items() if key[0] == fetch]
            plan = loaded.latest if fetch is None else next(reversed(fitting), None)
            if plan is None:
                return None
            ran = plan.executable.module  # while times are recorded, it is instrumented with clocks
            known = (each for each in self._modules.values() if each.record is ran.record)
            return next(known, ran), plan.executable.sizes

    def nbytes(self) -> int:
        """The total size of its arenas in bytes; waits for a run in progress."""
        with self._busy:
            scopes = [each for made in self._programs.values() for each in made.scopes.values()]
            timed = [each for known in scopes for each in known.timed.values()]
            loaded = [each for known in [*scopes, *timed] for each in known.executables.values()]
            return sum(executable.nbytes for executable in loaded)

    def unload(self) -> None:
        """Free the memory of everything loaded; the modules are kept."""
        with self._busy:
            self._programs.clear()

    def close(self) -> None:
        """Drop everything compiled and loaded; the next run starts from scratch."""
        self._programs.clear()
        self._modules.clear()
        self._unfit.clear()

    def _loaded(self, program: P, scope: Scope) -> Loaded:
        scopes = self._programs[program].scopes
        loaded = scopes.get(scope)
        if loaded is None:
            loaded = scopes[scope] = Loaded()
        recorder = self._recorder()
        return loaded if recorder is None else loaded.timed.setdefault(recorder, Loaded())

    def _plan(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        lod_owners: Mapping[str, str],
    ) -> Plan:  # fmt: skip
        fed = self._fed(program, feed, lod_owners)
        try:
            executable = self._fitting(program, fed, list(dict.fromkeys(fetch)), scope)
        except CompileError as error:
            raise fed.explained(error) from error
        feeds = tuple(tensor.name for tensor in executable.module.feeds)
        return Plan(executable, feeds, fed.kept, Layout.of(executable.module, fetch))

    def _fed(self, program: P, feed: Mapping[str, Array], lod_owners: Mapping[str, str]) -> Fed:
        declared = {name: self._declare(program, name) for name in feed if LOD not in name}
        return compare_feeds(declared, feed, lod_owners)

    def _fitting(self, program: P, fed: Fed, fetch: list[str], scope: Scope) -> Executable:
        """Return the program for a shape signature, or for exactly these sizes if it fixes some
        itself.

        If both fail, the error names the sizes that were fed.
        """
        for pattern in fed.patterns[:-1]:
            with suppress(ShapeError):
                return self._prepared(program, pattern, fed.exact, fetch, scope)
        return self._executable(program, fed.patterns[-1], fetch, scope)

    def _prepared(
        self, program: P, pattern: Pattern, exact: dict[str, tuple[int, ...]], fetch: list[str],
        scope: Scope,
    ) -> Executable:  # fmt: skip
        """Return the program for a shape signature, bound to these sizes; ShapeError if it does not
        fit.

        A signature that cannot be compiled is not tried again.
        """
        key = self._key(program, pattern, fetch)
        if key in self._unfit:
            raise ShapeError(f"the program does not fit the sizes {pattern}")
        try:
            executable = self._executable(program, pattern, fetch, scope)
        except ShapeError:
            _remember(self._unfit, key, None, MAX_MODULES)
            raise
        with suppress(NotInitialized):  # missing params may be fed
            executable.prepare(exact)
        return executable

    def _explain(
        self, program: P, plan: Plan, feed: Mapping[str, Array], fetch: Sequence[str]
    ) -> None:
        """Raise the ShapeError of compiling for exactly these sizes, if any: it is clearer than
        NumPy's.
        """
        fed = self._fed(program, feed, {})
        try:
            self._compile(program, fed.patterns[-1], list(dict.fromkeys(fetch)))
        except CompileError as error:
            raise fed.explained(error) from error

    def _executable(
        self, program: P, pattern: Pattern, fetch: list[str], scope: Scope
    ) -> Executable:
        """Return the program compiled for a shape signature and loaded for a scope."""
        executables = self._loaded(program, scope).executables
        module = self._module(program, pattern, fetch)
        key = self._key(program, pattern, fetch)
        if key not in executables:
            executables[key] = self._load(module, program, scope)
        return executables[key]

    def _module(self, program: P, pattern: Pattern, fetch: list[str]) -> Module:
        """Return the program compiled for a shape signature."""
        key = self._key(program, pattern, fetch)
        if key not in self._modules:
            _remember(self._modules, key, self._compile(program, pattern, fetch), MAX_MODULES)
            self.counters.compiles += 1
        return self._modules[key]

    def _key(self, program: P, pattern: Pattern, fetch: list[str]) -> Signature:
        """Return the cache key of a Module: equal for all runs that it serves."""
        return (self._programs[program].digest, *pattern.items(), *fetch)

    def _load(self, module: Module, program: P, scope: Scope) -> Executable:
        """Load a module for a scope, instrumented with clocks while times are recorded."""
        names, recorder = dict(self._names(program, scope)), self._recorder()
        params = self._params(module, scope)
        if recorder is not None:
            place = self.place
            wait = waiter(device_of(place)) if isinstance(place, CUDAPlace) else None
            module, clocks = recorder.tap(module, wait)
            names |= clocks
        module, kernels = self._code(module, self.place)
        names |= kernels
        return load(module, self.place, params, counters=self.counters, names=names)


def _keep(scope: Scope, name: str, array: Array) -> None:
    """Store a fed array in a variable of the scope."""
    found = scope.find_var(name) or scope.var(name)
    found.get_tensor().set(array, CPUPlace())


def _lod_owners(feed: Mapping[str, Array]) -> dict[str, str]:
    """The owners of the LoD of feeds, none if no name is that of offsets."""
    return lod_owners_of(feed) if LOD in "\n".join(feed) else {}


def _remember(known: dict[Signature, T], key: Signature, value: T, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = value
