"""Ranks: what runs the devices of a process but the first, worker processes or replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from compiler.codegen.module import Module
from compiler.ir.types import Array
from fluid.data_parallel.trainers import Trainers
from runtime import parallel
from runtime.device import CPUPlace, Place
from runtime.replicas import Replicas

__all__ = ["Ranks", "new_ranks"]

T = TypeVar("T")


class Ranks(Protocol):
    """The methods of `runtime.parallel.Pool` that devices use; see there."""

    is_open: bool
    forgotten: list[str]

    @property
    def has_state(self) -> bool:
        """Whether `get_state` can return the state."""
        ...

    @property
    def rings(self) -> Any:
        """The collectives of the first rank."""
        ...

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """The lock of threads that take turns."""
        ...

    def load(self, key: str, modules: Sequence[Module], scope: str = "") -> None:
        """Load a module on each rank but the first."""
        ...

    def drop(self, keys: Iterable[str] = (), scopes: Iterable[str] = ()) -> None:
        """Drop modules and scopes."""
        ...

    def set_state(self, scope: str, arrays: Mapping[str, Array], ranks: Iterable[int] = ()) -> None:
        """Copy arrays into a scope of every rank but the first, or of these ranks."""
        ...

    def get_state(self, rank: int, scope: str, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of arrays of a rank."""
        ...

    def share(self, scope: str, name: str, root: int, array: Array) -> None:
        """Copy a variable of one rank to the first device of every trainer."""
        ...

    def run(
        self, key: str, feeds: Sequence[Mapping[str, Array] | None], own: Callable[[], T]
    ) -> tuple[T, list[list[Any]]]:
        """Run a step on every rank, `own` as that of the first."""
        ...

    def close(self) -> None:
        """End the ranks."""
        ...


def new_ranks(places: Sequence[Place], trainers: Trainers) -> Ranks:
    """The ranks for these places: CPU devices of one process need no others, since kernels and
    NumPy compute without Python's lock; GPUs and several trainers have a process for each device.
    """
    if trainers.count == 1 and all(isinstance(place, CPUPlace) for place in places):
        return Replicas(len(places))
    pool = parallel.Pool(
        places, endpoints=trainers.endpoints, trainer=trainers.number, trainers=trainers.count,
        ring_count=trainers.rings,
    )  # fmt: skip
    if trainers.group > 1:
        pool.set_hierarchy(trainers.group * len(places))
    return pool
