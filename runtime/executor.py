"""Executor: compiles and runs programs on feeds, and caches all compiled and bound code.

A run with known shapes costs a look-up. Otherwise the dynamic dims of the feeds get names according
to which are equal, a program is compiled once per such shape signature, and new sizes are only
bound. Cache entries belong to a version of a program and to a scope, and are dropped with either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from threading import RLock
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import CompileError, ShapeError
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.gc_pause import gc_disabled
from compiler.support.per_version import PerVersion, Versioned
from runtime.binding import check_shapes
from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.errors import NotInitialized, StateMismatch, StepError
from runtime.feeds import Fed, compare_feeds
from runtime.fetch_layout import FetchLayout
from runtime.forks import renew_in_children
from runtime.gpu.cuda import device_of, waiter
from runtime.gpu.device_results import DeviceResult
from runtime.loader import Counters, Executable, load
from runtime.profiler import SpanRecorder
from runtime.program_source import ProgramSource
from runtime.sizes import LOD, Pattern, lod_owners_of
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

MAX_RUNS = 1024
"""Maximum number of runs cached for a program and a scope; past it all are dropped."""

MAX_MODULES = 256
"""Maximum number of modules cached by an Executor; past it all are dropped."""

Signature: TypeAlias = tuple[object, ...]

P = TypeVar("P", bound=Versioned)
T = TypeVar("T")


@dataclass(frozen=True)
class CachedRun:
    """All that a run of a known signature needs.

    That is its executable, the names of the feeds that are inputs and of those that set state, and
    where the fetches are among the results.
    """

    executable: Executable
    feeds: tuple[str, ...]
    state: tuple[str, ...]
    layout: FetchLayout


@dataclass
class ScopeCache:
    """What a program is loaded as in a scope: an Executable per Module, a run per signature.

    `recorded` has the same with clocks, for each recorder of times.
    """

    executables: dict[Signature, Executable] = field(default_factory=dict[Signature, Executable])
    runs: dict[Signature, CachedRun] = field(default_factory=dict[Signature, CachedRun])
    latest: CachedRun | None = None
    recorded: WeakKeyDictionary[SpanRecorder, ScopeCache] = field(
        default_factory=lambda: WeakKeyDictionary[SpanRecorder, ScopeCache]()
    )


class ProgramCache:
    """What one version of a program is loaded as, by scope; `digest` identifies the version."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.scopes: WeakKeyDictionary[Scope, ScopeCache] = WeakKeyDictionary()


class Executor(Generic[P]):
    """Runs the programs of a source on one place, by default the CPU."""

    def __init__(self, source: ProgramSource[P], place: Place | None = None) -> None:
        self.place = place or CPUPlace()
        self.counters = Counters()
        self._source = source
        self.renew_locks()
        renew_in_children(self)
        self._modules: dict[Signature, Module] = {}
        self._unfit: dict[Signature, None] = {}
        self._programs: PerVersion[P, ProgramCache]
        self._programs = PerVersion(lambda program: ProgramCache(source.digest(program)))

    def renew_locks(self) -> None:
        """Replace the lock held by steps with a free one; called in the child of a fork."""
        self._busy = RLock()

    def run(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Run a program once, with its state in `scope`; return copies of the fetches, in order.

        With `on_device`, large fetches from a GPU are LoDTensors whose elements stay there.

        The LoD offsets of a feed `x` with sequences are fed as `x@LOD0`, …; a fetch is an array, a
        LoDTensor if it has LoD, or a list of arrays for a tensor array. Threads wait for each
        other: the steps of a program share their memory. Raises FeedError for a feed of the wrong
        dtype, ShapeError for one of the wrong shape, and whatever compiling, loading and the step
        raise.
        """
        with self._busy:
            return self._run(program, feed, fetch, scope, on_device)

    def _run(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool,
    ) -> list[Any]:  # fmt: skip
        cache = self._cache(program, scope)
        runs = cache.runs
        kinds = [(name, array.shape, array.dtype) for name, array in feed.items()]
        lod_owners = _lod_owners(feed)
        signature = (fetch, *kinds, *lod_owners.items()) if lod_owners else (fetch, *kinds)
        run = runs.get(signature)
        if run is None:
            run = self._new_run(program, feed, fetch, scope, lod_owners)
            _remember(runs, signature, run, MAX_RUNS)
        cache.latest = run
        return self._step(program, run, feed, fetch, scope, on_device)

    def _step(
        self, program: P, run: CachedRun, feed: Mapping[str, Array], fetch: tuple[str, ...],
        scope: Scope, on_device: bool,
    ) -> list[Any]:  # fmt: skip
        for name in run.state:
            _set_state(scope, name, feed[name])
        try:
            arrays = [np.asarray(feed[n], order="C") for n in run.feeds]
            values = run.executable.run(arrays, on_device)
        except StepError:
            self._explain(program, feed, fetch)
            raise
        fetched = run.layout.fetched(values)
        return list(map(_in_tensor, fetched)) if on_device else fetched

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

    def last_run(
        self, program: P, scope: Scope, fetch: tuple[str, ...] | None = None
    ) -> tuple[Module, Mapping[str, int]] | None:
        """Return the module that a program last ran as in a scope, and the sizes it was bound to.

        With `fetch`, the last one compiled for these fetches. None if the current version of the
        program has not run.
        """
        with self._busy:
            cache = self._cache(program, scope)
            fetching = [run for key, run in cache.runs.items() if key[0] == fetch]
            run = cache.latest if fetch is None else next(reversed(fetching), None)
            if run is None:
                return None
            ran = run.executable.module  # while times are recorded, it is instrumented with clocks
            originals = (entry for entry in self._modules.values() if entry.record is ran.record)
            return next(originals, ran), run.executable.sizes

    def nbytes(self) -> int:
        """The total size of its arenas in bytes; waits for a run in progress."""
        with self._busy:
            scopes = [scope for cache in self._programs.values() for scope in cache.scopes.values()]
            recorded = [
                timed_modules for cache in scopes for timed_modules in cache.recorded.values()
            ]
            loaded = [
                executable
                for cache in scopes + recorded
                for executable in cache.executables.values()
            ]
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

    def _cache(self, program: P, scope: Scope) -> ScopeCache:
        """Return what is loaded for a scope, with clocks while times are recorded."""
        scopes = self._programs[program].scopes
        cache = scopes.get(scope)
        if cache is None:
            cache = scopes[scope] = ScopeCache()
        recorder = self._source.recorder()
        return cache if recorder is None else cache.recorded.setdefault(recorder, ScopeCache())

    def _new_run(
        self, program: P, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        lod_owners: Mapping[str, str],
    ) -> CachedRun:  # fmt: skip
        fed = self._fed(program, feed, lod_owners)
        try:
            with gc_disabled():
                executable = self._fitting(program, fed, list(dict.fromkeys(fetch)), scope)
        except CompileError as error:
            raise fed.explained(error) from error
        feeds = tuple(tensor.name for tensor in executable.module.feeds)
        return CachedRun(executable, feeds, fed.kept, FetchLayout.of(executable.module, fetch))

    def _fed(self, program: P, feed: Mapping[str, Array], lod_owners: Mapping[str, str]) -> Fed:
        declared = {name: self._source.declared(program, name) for name in feed if LOD not in name}
        return compare_feeds(declared, feed, lod_owners)

    def _fitting(self, program: P, fed: Fed, fetch: list[str], scope: Scope) -> Executable:
        """Return the program for a shape signature, or for exactly these sizes if it fixes some
        itself.

        If both fail, the error names the sizes that were fed.
        """
        for pattern in fed.patterns[:-1]:
            try:
                return self._prepared(program, pattern, fed.exact, fetch, scope)
            except StateMismatch:
                raise
            except ShapeError:
                continue
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

    def _explain(self, program: P, feed: Mapping[str, Array], fetch: Sequence[str]) -> None:
        """Raise the ShapeError of compiling for exactly these sizes, if any: it is clearer than
        NumPy's.
        """
        fed = self._fed(program, feed, {})
        try:
            self._source.compile(program, fed.patterns[-1], list(dict.fromkeys(fetch)))
        except CompileError as error:
            raise fed.explained(error) from error

    def _executable(
        self, program: P, pattern: Pattern, fetch: list[str], scope: Scope
    ) -> Executable:
        """Return the program compiled for a shape signature and loaded for a scope."""
        executables = self._cache(program, scope).executables
        module = self._module(program, pattern, fetch)
        key = self._key(program, pattern, fetch)
        if key not in executables:
            executables[key] = self._load(module, program, scope)
        return executables[key]

    def _module(self, program: P, pattern: Pattern, fetch: list[str]) -> Module:
        """Return the program compiled for a shape signature."""
        key = self._key(program, pattern, fetch)
        if key not in self._modules:
            module = self._source.compile(program, pattern, fetch)
            _remember(self._modules, key, module, MAX_MODULES)
            self.counters.compiles += 1
        return self._modules[key]

    def _key(self, program: P, pattern: Pattern, fetch: list[str]) -> Signature:
        """Return the cache key of a Module: equal for all runs that it serves."""
        return (self._programs[program].digest, *pattern.items(), *fetch)

    def _load(self, module: Module, program: P, scope: Scope) -> Executable:
        """Load a module for a scope, instrumented with clocks while times are recorded."""
        source = self._source
        names, recorder = dict(source.globals(program, scope)), source.recorder()
        params = source.params(module, scope)
        if recorder is not None:
            place = self.place
            wait = waiter(device_of(place)) if isinstance(place, CUDAPlace) else None
            module, clocks = recorder.tap(module, wait)
            names |= clocks
        module, kernels = source.loadable(module, self.place)
        names |= kernels
        return load(module, self.place, params, counters=self.counters, names=names)


def _set_state(scope: Scope, name: str, array: Array) -> None:
    """Store a fed array in a variable of the scope."""
    variable = scope.find_var(name) or scope.var(name)
    variable.get_tensor().set(array, CPUPlace())


def _lod_owners(feed: Mapping[str, Array]) -> dict[str, str]:
    """The owners of the LoD of feeds, none if no name is that of offsets."""
    return lod_owners_of(feed) if LOD in "\n".join(feed) else {}


def _remember(cache: dict[Signature, T], key: Signature, value: T, most: int) -> None:
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def _in_tensor(value: Any) -> Any:
    """Return a result that stays on a device as a LoDTensor; others unchanged."""
    return LoDTensor(value) if isinstance(value, DeviceResult) else value
