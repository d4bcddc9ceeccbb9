"""Devices of a data-parallel run, and which scope values each of them holds.

Device 0 works on the user's scope itself; devices 1 to k−1 have private copies, in this process or
in worker processes (`ranks`). Executors on the same places share these; each has its own copies,
unless `share_vars_from` names another executor to share with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.types import Array
from fluid.data_parallel.ranks import Ranks, new_ranks
from fluid.data_parallel.trainers import ALONE, Trainers
from runtime.device import Place
from runtime.errors import CollectiveError
from runtime.replicas import Replicas
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["Devices"]

_pools: WeakValueDictionary[tuple[object, ...], Ranks] = WeakValueDictionary()
_numbers = count()


class Devices:
    """Devices with private copies of the variables of one scope.

    `places` has one place per device of this machine; `trainers` lists the machines that train
    together, each with as many devices.
    """

    def __init__(self, places: Sequence[Place], scope: Scope, trainers: Trainers = ALONE) -> None:
        self.places = list(places)
        self.scope = scope
        self.trainers = trainers
        self.has_met = False
        self._name = f"scope{next(_numbers)}"
        self._pool: Ranks | None = None
        self._at_end: finalize[..., Devices] | None = None
        self._turn = RLock()
        self._sent: set[str] = set()
        self._loaded: set[str] = set()
        self._owners: dict[str, int] = {}
        self._to_offload: dict[str, int] = {}
        self._collected: dict[str, Array] = {}
        self._likes: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]] = {}
        self._written = self._by_devices = self._generation = -1
        self._has_warned = False

    @property
    def ranks(self) -> int:
        """The number of devices of all trainers."""
        return len(self.places) * self.trainers.count

    @property
    def own_ranks(self) -> range:
        """The ranks of the devices of this process, the first of which is the process itself."""
        first = self.trainers.number * len(self.places)
        return range(first, first + len(self.places))

    @property
    def kind(self) -> str:
        """The device kind in messages: CPU or GPU."""
        return "CPU" if type(self.places[0]).__name__ == "CPUPlace" else "GPU"

    def pool(self) -> Ranks:
        """The running processes; starts new ones, without values, if there are none."""
        if self._pool is None or not self._pool.is_open:
            self._pool = _shared_pool(self.places, self.trainers)
            self._sent.clear()
            self._loaded.clear()
            self._owners.clear()
            self._to_offload.clear()
            self.has_met = False
            if self._at_end is not None:
                self._at_end.detach()  # it would keep the ended processes' memory
            self._at_end = finalize(self, _drop, self._pool, self._name)
        return self._pool

    @contextmanager
    def turn(self) -> Generator[None]:
        """While this thread runs programs on the devices: others wait, also those of other scopes
        whose devices are the same processes.
        """
        with self._turn:
            if self.ranks == 1:
                yield
            else:
                with self.pool().turn:
                    yield

    @property
    def calls_python(self) -> bool:
        """Whether all devices have the Python functions of this process."""
        return self.ranks == 1 or isinstance(self.pool(), Replicas)

    def load(self, modules: Sequence[Module], callables: Sequence[Callable[..., Any]] = ()) -> str:
        """Load one module on each worker, over its copies; returns the key to run them with.

        `callables` are the functions that a program calls, if `calls_python`.
        """
        digests = dict.fromkeys(module.digest for module in modules)
        called = f"/{id(callables)}" if callables else ""  # a loaded module keeps them alive
        key = f"{self._name}/{'/'.join(digests)}{called}"
        if key not in self._loaded:
            pool = self.pool()
            if isinstance(pool, Replicas):
                pool.load(key, modules, self._name, callables)
            else:
                pool.load(key, modules, self._name)
            self._loaded.add(key)
        return key

    def drop_modules(self) -> None:
        """Free the modules that the workers loaded for these copies; the copies remain."""
        if self._pool is not None and self._pool.is_open and self._loaded:
            self._pool.drop(keys=sorted(self._loaded))
        self._loaded.clear()

    # Values

    def set_fed(self, names: Sequence[str], shares: Sequence[Mapping[str, Array]]) -> None:
        """Set variables of the workers to their feeds."""
        for rank, share in zip(self.own_ranks[1:], shares[1:], strict=False):
            self.pool().set_state(self._name, {name: share[name] for name in names}, [rank])

    def synchronize(self, names: Collection[str], owners: Mapping[str, int]) -> bool:
        """Send every device the current values of variables that it lacks, from device 0.

        `owners` maps variables to the only rank that holds them: `offload` frees device 0's copies
        of variables with another owner. If anything but data-parallel steps has written to the
        scope (a plain Executor, a load, a `set`), all values are sent again. Variables that do not
        exist yet are skipped. Returns whether all values were sent, as for the first step.
        """
        clock = self.scope.clock
        others = clock.written - self._written > clock.by_devices - self._by_devices
        if self._written < 0 or others:
            self._sent.clear()
        elif clock.by_devices > self._by_devices:
            self._warn(names)
        self._collected.clear()
        is_first = not self._sent
        if clock.now != self._generation or not self._sent.issuperset(names):
            self._send(names, owners)
        self.note()
        return is_first

    def note(self) -> None:
        """Record the current write count of the scope: only a step of these devices has written."""
        clock = self.scope.clock
        self._written, self._by_devices = clock.written, clock.by_devices
        self._generation = clock.now

    def _warn(self, names: Collection[str]) -> None:
        """Warn once if other devices changed variables of these names."""
        if self._has_warned:
            return
        writes = self.scope.clock.device_writes.items()
        if any(at > self._by_devices and not changed.isdisjoint(names) for changed, at in writes):
            self._has_warned = True
            warnings.warn(
                "another data-parallel executor has trained variables of this scope: device 0 sees "
                "the new values, the other devices their own older copies; pass share_vars_from to "
                "use the copies of the executor that trains",
                stacklevel=6,
            )

    def _send(self, names: Collection[str], owners: Mapping[str, int]) -> None:
        """Send variables that are new to the devices, or that were read back to device 0."""
        tensors = {name: tensor for name in names if (tensor := self._tensor(name)) is not None}
        self._take_back(tensors, owners)
        fresh = {
            name: array
            for name, tensor in tensors.items()
            if (name not in self._sent or name in owners)
            and not tensor.is_offloaded
            and (array := tensor.read()) is not None
        }
        common = {name: array for name, array in fresh.items() if name not in owners}
        self.pool().set_state(self._name, common)
        for rank in self.own_ranks[1:]:
            mine = {name: array for name, array in fresh.items() if owners.get(name) == rank}
            self.pool().set_state(self._name, mine, [rank])
        self._to_offload = {name: owners[name] for name in fresh if name in owners}
        self._sent.update(names)

    def offload(self) -> None:
        """Free device 0's copies of variables with another owner; reads fetch them
        from the owner.
        """
        for name, rank in self._to_offload.items():
            self._owners[name], tensor = rank, self._tensor(name)
            away = rank != self.own_ranks[0]
            array = tensor.read() if away and tensor is not None else None
            if tensor is not None and array is not None:
                self._likes[name] = array.shape, array.dtype
                tensor.offload(partial(self._read, self.pool(), rank, name))
        if self._to_offload:
            self._to_offload = {}
            self.note()

    def _tensor(self, name: str) -> LoDTensor | None:
        variable = self.scope.find_var(name)
        return None if variable is None else variable.get_tensor()

    def _take_back(self, tensors: Mapping[str, LoDTensor], owners: Mapping[str, int]) -> None:
        """Read back values held by one device that all devices or another owner need now."""
        for name, tensor in tensors.items():
            if tensor.is_offloaded and owners.get(name) != self._owners.get(name):
                self._sent.discard(name)
                tensor.peek()

    def _read(self, pool: Ranks, rank: int, name: str) -> Array:
        """Read the value of a variable that one device holds.

        With several trainers this is a collective, so all of them must read now, for example in a
        save: every such variable is broadcast and kept until the next step.
        """
        if not pool.has_state:
            raise CollectiveError(
                f"the value of {name!r} is lost: device {rank}, which alone held it "
                "(reduce_strategy Reduce), has ended",
                hint="load the last checkpoint into the scope, then continue",
            )
        if self.trainers.count == 1:
            return pool.get_state(rank, self._name, [name])[name]
        if name not in self._collected:
            self._collected = {
                owned_name: self._shared(pool, owned_name) for owned_name in sorted(self._owners)
            }
        return self._collected.pop(name)

    def _shared(self, pool: Ranks, name: str) -> Array:
        """The value of a variable, broadcast from its owner; a collective of all trainers."""
        root, tensor = self._owners[name], self._tensor(name)
        mine = root == self.own_ranks[0]
        value = tensor.read() if mine and tensor is not None else None
        array = np.empty(*self._likes[name]) if value is None else value.copy()
        pool.share(self._name, name, root, array)
        return array

    def owned(self, name: str, rank: int) -> Array | None:
        """A copy of a variable's value, from the rank that owns it."""
        tensor = self._tensor(name)
        if self.trainers.count > 1:
            return self._shared(self.pool(), name)
        if rank:
            return self._read(self.pool(), rank, name)
        array = None if tensor is None else tensor.read()
        return None if array is None else array.copy()


def _shared_pool(places: Sequence[Place], trainers: Trainers) -> Ranks:
    """What runs these places: that of another executor, or a new one."""
    key = (tuple(map(str, places)), trainers)
    pool = _pools.get(key)
    if pool is None or not pool.is_open:
        _pools[key] = pool = new_ranks(places, trainers)
    return pool


def _drop(pool: Ranks, name: str) -> None:
    """Free the workers' copies of an executor that was destroyed."""
    if pool.is_open:
        pool.forgotten.append(name)
