"""Places: the devices on which values are stored and steps run, named as in fluid."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from compiler.support.dataclass import dataclass
from runtime.errors import PlaceError


class PlaceKind:
    """Base class of places, with the queries that scripts use."""

    number: ClassVar[int]
    """The number of the place kind in release 1.8.5."""

    def _type(self) -> int:
        return self.number

    def _equals(self, other: object) -> bool:
        return self == other

    def is_cpu_place(self) -> bool:
        """Whether it is host memory."""
        return isinstance(self, CPUPlace)

    def is_gpu_place(self) -> bool:
        """Whether it is a CUDA device."""
        return isinstance(self, CUDAPlace)

    def is_cuda_pinned_place(self) -> bool:
        """Whether it is pinned host memory."""
        return isinstance(self, CUDAPinnedPlace)

    def gpu_device_id(self) -> int:
        """The index of the CUDA device, -1 for other places."""
        return self.device if isinstance(self, CUDAPlace) else -1


@dataclass(frozen=True)
class CPUPlace(PlaceKind):
    """Host memory and the CPU; runs modules for the target `numpy`.

    >>> print(CPUPlace(), CPUPlace() == CPUPlace())
    CPUPlace True
    """

    number = 1

    def __str__(self) -> str:
        return "CPUPlace"


@dataclass(frozen=True)
class CUDAPlace(PlaceKind):
    """The CUDA device with this index, counted from 0. Raises PlaceError for an invalid index.

    >>> print(CUDAPlace(1), CUDAPlace(0) == CUDAPlace(1))
    CUDAPlace(1) False
    """

    number = 0

    device: int

    def __post_init__(self) -> None:
        if type(self.device) is not int or self.device < 0:
            raise PlaceError(f"CUDAPlace takes a device number from 0, not {self.device!r}")

    def __str__(self) -> str:
        return f"CUDAPlace({self.device})"


@dataclass(frozen=True)
class CUDAPinnedPlace(PlaceKind):
    """Pinned host memory, from which a CUDA device copies directly."""

    number = 2

    def __str__(self) -> str:
        return "CUDAPinnedPlace"


Place: TypeAlias = CPUPlace | CUDAPlace | CUDAPinnedPlace
PLACES = (CPUPlace, CUDAPlace, CUDAPinnedPlace)
"""The classes of places, for `isinstance`."""


def expect_place(place: object) -> None:
    """Raise TypeError, naming the type, if a value is not a place."""
    if not isinstance(place, PLACES):
        raise TypeError(f"a place is CPUPlace() or CUDAPlace(i), not {place!r}")


def expect_target(target: str, place: Place) -> None:
    """Raise PlaceError if a module for this target does not run on this place."""
    if target not in _KINDS:
        targets = " and ".join(map(repr, _KINDS))
        raise PlaceError(f"a module for the target {target!r} cannot be loaded: {targets} can")
    if not isinstance(place, _KINDS[target]):
        kind = _KINDS[target].__name__
        raise PlaceError(
            f"a module for the target {target!r} runs on {kind}, not on {place}",
            hint=f"pass place={kind}({0 if kind == 'CUDAPlace' else ''})",
        )


_KINDS: dict[str, type] = {"numpy": CPUPlace, "native": CPUPlace, "triton": CUDAPlace}


def target_of(place: Place) -> str:
    """Return the target whose modules run on a place. Raises PlaceError for memory that runs
    nothing.
    """
    for target, kind in _KINDS.items():
        if isinstance(place, kind):
            return target
    raise PlaceError(f"no program runs on {place}", hint="pass CPUPlace() or CUDAPlace(0)")
