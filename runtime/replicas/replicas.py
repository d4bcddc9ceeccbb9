"""Replicas: the ranks of one process, each with its own copies of the variables of scopes.

The first rank is the caller's own: its step is a function that is passed to `run`. The others run
modules that the caller compiled. Every failed step ends the replicas, whose state is no longer
consistent: the caller creates others and sends them the state again. That of a rank can be read
until then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import RLock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.processors import available_processors
from runtime.blas import blas_threads
from runtime.device import CPUPlace
from runtime.error_reports import error_report, reported_error
from runtime.errors import CollectiveError, FeedError
from runtime.forks import renew_in_children
from runtime.loader import Executable, load
from runtime.replicas.collectives import Collectives, ReplicaRings
from runtime.replicas.turns import TaskFailed, Turns
from runtime.tensors.scope import Scope

WIDE_FROM = 2e-3
"""Seconds of a step from which its ranks run at the same time: changing turns then costs little,
and a rank computes without Python's lock for most of them."""

T = TypeVar("T")


@dataclass
class LoadedStep:
    """A module on each rank but the first, and how many ranks take turns at a time."""

    executables: list[Executable]
    width: int = 1
    runs: int = 0


class Replicas:
    """Ranks 0 to `size` - 1 in this process; `rings` are the collectives of rank 0."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_open = True
        self.forgotten: list[str] = []
        """Scopes to drop before the next step; finalizers, which may run at any time, add to it."""
        self._turns = Turns(size)
        collectives = Collectives(size, self._turns)
        self._rings = [ReplicaRings(collectives, rank) for rank in range(size)]
        self.rings = self._rings[0]
        self._scopes: list[dict[str, Scope]] = [{} for _ in range(size)]
        self._loaded: dict[str, LoadedStep] = {}
        self.renew_locks()
        renew_in_children(self)
        if blas := blas_threads():
            blas.share()
        self._finalizer = weakref.finalize(self, _end, self._turns)

    def renew_locks(self) -> None:
        """Make a lock for threads that take turns: one at a time may run a step."""
        self.turn = RLock()

    @property
    def has_state(self) -> bool:
        """Whether `get_state` can return the state: also after an error."""
        return True

    def close(self) -> None:
        """End the threads and drop the modules."""
        self.is_open = False
        self._finalizer()
        self._loaded.clear()

    # Modules and state

    def load(
        self,
        key: str,
        modules: Sequence[Module],
        scope: str = "",
        callables: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Load a module under a key on every rank but the first, with its state in a scope.

        A scope is a name for arrays that modules share on a rank; `callables` are the Python
        functions of `py_func`. Raises as `runtime.load`.
        """
        self._expect_open()
        pairs = zip(self._rings[1:], modules, strict=True)
        self._loaded[key] = LoadedStep([
            load(
                module, CPUPlace(), self._scope(rings.rank(), scope),
                names={"collective": rings, "callables": callables},
            )
            for rings, module in pairs
        ])  # fmt: skip

    def drop(self, keys: Iterable[str] = (), scopes: Iterable[str] = ()) -> None:
        """Drop modules and scopes; unknown names are ignored."""
        for key in keys:
            self._loaded.pop(key, None)
        for name in scopes:
            for by_name in self._scopes:
                by_name.pop(name, None)

    def set_state(self, scope: str, arrays: Mapping[str, Array], ranks: Iterable[int] = ()) -> None:
        """Copy arrays into a scope of every rank but the first, or of these ranks."""
        self._expect_open()
        for rank in set(ranks) or range(1, self.size):
            own = self._scope(rank, scope)
            for name, array in arrays.items():
                own.var(name).get_tensor().set(array, CPUPlace())

    def get_state(self, rank: int, scope: str, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of arrays in a rank's scope. Raises KeyError for an unknown name."""
        arrays = self._scope(rank, scope).arrays().tracked()
        return {name: arrays[name].copy() for name in names}

    def share(self, scope: str, name: str, root: int, array: Array) -> None:
        """Copy a variable of the rank `root` into `array`."""
        array[...] = self.get_state(root, scope, [name])[name]

    # Steps

    def run(
        self, key: str, feeds: Sequence[Mapping[str, Array] | None], own: Callable[[], T]
    ) -> tuple[T, list[list[Any]]]:
        """Run a step on every rank, `own` as that of the first; return its result and copies of the
        others' fetches, by rank.

        `feeds` has those of each rank but the first, by name; a rank whose feeds are None is
        skipped, for modules without collectives. Raises FeedError if a feed is missing, the error
        of `own`, and WorkerError for one of another rank; these, and Ctrl-C, end the replicas.
        """
        self._expect_open()
        while self.forgotten:
            self.drop(scopes=[self.forgotten.pop()])
        step = self._loaded[key]
        pairs = enumerate(zip(step.executables, feeds, strict=True), 1)
        others = [_task(executable, feed, rank) for rank, (executable, feed) in pairs]
        start = perf_counter()
        try:
            result, *fetches = self._turns.run([own, *others], step.width)
        except TaskFailed as failed:
            self.close()
            raise reported_error(error_report(failed.error, failed.rank)) from None
        except BaseException:
            self.close()
            raise
        self._choose_width(step, perf_counter() - start)
        pairs = zip(fetches, others, strict=True)
        return result, [fetched for fetched, task in pairs if task is not None]

    def _choose_width(self, step: LoadedStep, seconds: float) -> None:
        """Choose how many ranks compute at a time in the next step: all processors for a long one.

        The first step does not count: it binds sizes.
        """
        step.runs += 1
        most = min(self.size, available_processors())
        if step.runs > 1 and (step.width == 1) == (seconds * step.width > WIDE_FROM):
            step.width = most if step.width == 1 else 1

    def _scope(self, rank: int, name: str) -> Scope:
        scopes = self._scopes[rank]
        if name not in scopes:
            scopes[name] = Scope()
        return scopes[name]

    def _expect_open(self) -> None:
        if not self.is_open:
            raise CollectiveError("these replicas have ended after an error", hint="make others")


def _task(
    executable: Executable, feed: Mapping[str, Array] | None, rank: int
) -> Callable[[], list[Any]] | None:
    """The step of a rank on its feeds; FeedError if one is missing."""
    if feed is None:
        return None
    try:
        arrays = [np.asarray(feed[each.name], order="C") for each in executable.module.feeds]
    except KeyError as error:
        raise FeedError(f"missing feed of rank {rank}: {error.args[0]!r}") from None
    return partial(executable.run, arrays)


def _end(turns: Turns) -> None:
    """End threads, and let products use as many as before."""
    turns.close()
    if blas := blas_threads():
        blas.unshare()
