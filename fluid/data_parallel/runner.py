"""One step of a program on all devices: split feeds, run the ranks in parallel, merge fetches.

Everything derived from a kind of step (feed shapes, fetches) is cached, so that the next one costs
a lookup. Rank 0 runs here, in the executor's core; the other ranks run the module that the core
compiled for their share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.data_parallel.build import RankPrograms, build, expect_no_python
from fluid.data_parallel.device_feeds import device_feeds
from fluid.data_parallel.devices import Devices
from fluid.data_parallel.first_values import broadcast_program
from fluid.data_parallel.rewrite import computes_gradients
from fluid.data_parallel.split_feeds import Feed
from fluid.data_parallel.strategies import BuildStrategy, ExecutionStrategy
from fluid.framework import Program
from fluid.running.branch_selection import expect_one_type
from fluid.running.fetched_values import Value
from fluid.running.single_step import changed_state
from runtime import executor as core
from runtime.errors import FeedError, ScheduleError
from runtime.fetch_layout import FetchLayout
from runtime.sizes import LOD, lod_owners_of

__all__ = ["DataParallel"]

Core = core.Executor[Program]

KEPT_KINDS = 256
"""Maximum number of cached kinds of step of an executor; beyond it the cache is cleared."""


@dataclass(frozen=True)
class StepKind:
    """A cached kind of step: the program of rank 0 with its fetches, and the workers' module key.

    `layouts` are the result layouts of each worker, `kept` the feeds that set persistable state.
    `owners` maps variables to the only rank that holds them; these are fetched from the owner
    after the step: `owned` are their names by position.
    """

    program: Program
    fetch: tuple[str, ...]
    key: str
    layouts: tuple[FetchLayout, ...]
    kept: tuple[str, ...]
    owners: Mapping[str, int]
    owned: Mapping[int, str]


Kinds: TypeAlias = dict[tuple[object, ...], StepKind]


class DataParallel:
    """Runs a program on all places of `devices`, as configured by its strategies."""

    def __init__(
        self,
        program: Program,
        build_strategy: BuildStrategy,
        exec_strategy: ExecutionStrategy,
        devices: Devices,
    ) -> None:
        self.devices = devices
        self._program = program
        self._strategy = build_strategy
        self._execution = exec_strategy
        self._source: tuple[object, int] = (None, -1)
        self._built: dict[tuple[str, ...], RankPrograms] = {}
        self._kinds: WeakKeyDictionary[Core, Kinds] = WeakKeyDictionary()
        self._names: frozenset[str] = frozenset()
        self._trains, self._changed = False, frozenset[str]()

    def run(
        self, runner: Core, feed: object, fetch: tuple[str, ...], strict: bool = False
    ) -> list[list[Value]]:
        """Run the program `num_iteration_per_run` times; returns the last fetches of each device.

        Unless `strict`, a program that computes no gradients may be fed less than one row or dict
        per device; then only the first devices run it. Raises the errors of splitting feeds,
        compiling and the step; WorkerError and RankError name the failing device.
        """
        if self._execution.is_dry_run:
            return [[np.empty(0, np.float32) for _ in fetch] for _ in self.devices.places]
        results: list[list[Value]] = []
        with self.devices.turn():
            self._refresh()
            for _ in range(self._execution.num_iteration_per_run):
                results = self._step(runner, self._shares(feed, fetch, strict), fetch)
        return results

    def run_shares(
        self, runner: Core, shares: list[Feed], fetch: tuple[str, ...]
    ) -> list[list[Value]]:
        """Run the program once on the feeds of the devices; returns the fetches of each device."""
        with self.devices.turn():
            self._refresh()
            return self._step(runner, shares, fetch)

    def local_program(self, fetch: tuple[str, ...] = ()) -> Program:
        """The program of rank 0, with its collectives."""
        self._refresh()
        return self._built_for(fetch).programs[0]

    def drop_temporaries(self) -> None:
        """Free the memory of temporaries on all devices; the next run allocates it again."""
        self._kinds.clear()
        self._built.clear()
        self.devices.drop_modules()

    def _refresh(self) -> None:
        """Clear the caches if the program was edited or the processes are new."""
        devices = self.devices
        pool = devices.pool() if devices.ranks > 1 else None
        if self._source != (pool, self._program.version):
            program = self._program
            if not devices.calls_python:
                expect_no_python(program, len(devices.places))
            if devices.ranks > 1:
                expect_one_type(program)
            self._source = (pool, program.version)
            self._built.clear()
            self._kinds.clear()
            self._trains, self._changed = computes_gradients(program), changed_state(program)
            self._names = frozenset(var.name for var in program.all_vars() if var.persistable)

    def _shares(self, feed: object, fetch: tuple[str, ...], strict: bool) -> list[Feed]:
        program = self._built_for(fetch).programs[0]
        places, partial = len(self.devices.places), not strict and not self._trains
        return device_feeds(program, feed, places, self.devices.kind, partial)

    def _step(self, runner: Core, shares: list[Feed], fetch: tuple[str, ...]) -> list[list[Value]]:
        kinds = self._kinds.setdefault(runner, {})
        signature = (fetch, *map(_kinds_of, shares))
        kind = kinds.get(signature)
        if kind is None:
            kind = self._kind(runner, shares, fetch)
            if len(kinds) >= KEPT_KINDS:
                kinds.clear()
            kinds[signature] = kind
        results = self._run(runner, kind, shares)
        if self._changed:
            self.devices.scope.clock.record_devices(self._changed)
        self.devices.note()
        return results

    def _run(self, runner: Core, kind: StepKind, shares: list[Feed]) -> list[list[Value]]:
        devices = self.devices
        if devices.ranks == 1:
            return [runner.run(kind.program, shares[0], kind.fetch, devices.scope)]
        is_first = devices.synchronize(self._names, kind.owners)
        if is_first and devices.trainers.count > 1 and not devices.has_met:
            self._broadcast(runner, kind.owners)
        devices.offload()
        if kind.kept:
            devices.set_fed(kind.kept, shares)
        idle = [None] * (len(devices.places) - len(shares))
        own, others = devices.pool().run(
            kind.key,
            [*shares[1:], *idle],
            partial(runner.run, kind.program, shares[0], kind.fetch, devices.scope),
        )
        pairs = zip(kind.layouts, others, strict=True)
        results = [own, *(layout.fetched(values) for layout, values in pairs)]
        for index, name in kind.owned.items():
            value = devices.owned(name, kind.owners[name])
            for values in results:
                values.insert(index, value)
        return results

    def _broadcast(self, runner: Core, owners: Mapping[str, int]) -> None:
        """Broadcast the values of trainer 0 to all devices of all trainers."""
        devices = self.devices
        first, *others = (
            broadcast_program(self._program, self._names, devices.scope, rank, owners)
            for rank in devices.own_ranks
        )
        first.collective = devices.pool().rings
        key = devices.load([runner.module(program, {}, ()) for program in others])
        step = partial(runner.run, first, {}, (), devices.scope)
        devices.pool().run(key, [dict[str, Array]()] * len(others), step)
        devices.has_met = True

    def _kind(self, runner: Core, shares: list[Feed], fetch: tuple[str, ...]) -> StepKind:
        built = self._built_for(fetch)
        owned = {index: name for index, name in enumerate(fetch) if name in built.owners}
        inner = tuple(name for name in fetch if name not in built.owners)
        pairs = zip(built.programs, shares, strict=False)
        modules = [runner.module(program, share, inner) for program, share in pairs]
        callables = built.programs[0].callables
        key = self._loaded(modules, callables) if self.devices.ranks > 1 else ""
        variables = built.programs[0].blocks[0].vars
        persistable = tuple(n for n in shares[0] if LOD not in n and variables[n].persistable)
        layouts = tuple(FetchLayout.of(module, inner) for module in modules[1:])
        return StepKind(built.programs[0], inner, key, layouts, persistable, built.owners, owned)

    def _loaded(self, modules: Sequence[Module], callables: Sequence[Callable[..., Any]]) -> str:
        """Load modules on the workers and return their key; workers without a feed
        load the first.
        """
        self._expect_same_schedule(modules)
        idle = len(self.devices.places) - len(modules)
        return self.devices.load([*modules[1:], *[modules[0]] * idle], callables)

    def _expect_same_schedule(self, modules: Sequence[Module]) -> None:
        """Raise ScheduleError if the feeds' shapes make devices issue different collectives.

        Raises FeedError if some devices have no feed, since the others would wait for them.
        """
        first = modules[0].collectives
        if first and len(modules) < len(self.devices.places):
            raise FeedError("the program has collectives, so that every device must be fed")
        for rank, module in enumerate(modules):
            if module.collectives != first:
                raise ScheduleError(
                    f"devices 0 and {rank} would issue different collectives for these feeds",
                    hint="feed every device arrays with the same axes of size 1",
                )

    def _built_for(self, fetch: tuple[str, ...]) -> RankPrograms:
        """The programs of own ranks; with parameter owners they depend on the fetches."""
        reduces = self._strategy.reduce_strategy is BuildStrategy.ReduceStrategy.Reduce
        key = fetch if reduces else ()
        if key not in self._built:
            is_first = not self._built
            devices = self.devices
            how = self._strategy, devices.ranks, key, is_first, devices.trainers.rings
            built = build(self._program, *how)
            own = [built.programs[rank] for rank in devices.own_ranks]
            for program in own if devices.ranks > 1 else []:
                program.collective = devices.pool().rings
            self._built[key] = RankPrograms(own, built.owners)
        return self._built[key]


def _kinds_of(share: Feed) -> tuple[object, ...]:
    """Cache key of a feed: names, shapes, dtypes and which LoDs are shared."""
    kinds = [(name, array.shape, array.dtype) for name, array in share.items()]
    shared = lod_owners_of(share) if any(LOD in name for name in share) else {}
    return (*kinds, *shared.items())
