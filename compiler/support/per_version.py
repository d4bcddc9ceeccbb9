"""Values computed from a program, cached until it is edited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["PerVersion", "Versioned"]


class Versioned(Protocol):
    """A program, as far as caches of it are concerned: `version` changes with every edit."""

    @property
    def version(self) -> int:
        """A number that every edit increases."""
        ...


P = TypeVar("P", bound=Versioned)
T = TypeVar("T")


class PerVersion(Generic[P, T]):
    """Results of `compute(program)`, one for the current version of each program.

    A result is dropped when its program is edited and used again, or collected; so it must not
    refer to the program. Threads that need the same result at once may each compute it, and all
    receive the first one stored.
    """

    def __init__(self, compute: Callable[[P], T]) -> None:
        self._compute = compute
        self._results: WeakKeyDictionary[P, dict[int, T]] = WeakKeyDictionary()

    def __getitem__(self, program: P) -> T:
        """Return the result for the current version of a program; raises what computing raises."""
        results = self._results.get(program)
        if results is not None:
            try:
                return results[program.version]
            except KeyError:
                pass
        return self._computed(program)

    def _computed(self, program: P) -> T:
        version = program.version
        result = self._compute(program)
        results = self._results.setdefault(program, {})
        for other in [
            cached_version for cached_version in list(results) if cached_version != version
        ]:
            results.pop(other, None)
        return results.setdefault(version, result)

    def replace(self, program: P, result: T) -> T:
        """Store another result for the current version of a program; returns it."""
        self._results.setdefault(program, {})[program.version] = result
        return result

    def get(self, program: P) -> T | None:
        """Return the result for the current version of a program; None if not computed yet."""
        return self._results.get(program, {}).get(program.version)

    def values(self) -> Iterator[T]:
        """Iterate over all results."""
        for results in list(self._results.values()):
            yield from list(results.values())

    def clear(self) -> None:
        """Drop all results."""
        self._results.clear()
