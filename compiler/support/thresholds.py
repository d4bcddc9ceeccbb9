"""Sizes from which on generated code takes another path.

A module that compares sizes with a number defines it by `threshold`, and reads its `value`:

    MIN_WORK = threshold("min_work", 8192, "iterations", "a unit of work is shared", small=32)
    ...
    if iterations >= MIN_WORK.value: ...

So all of them can be listed (`all_thresholds`), the ops that depend on each can be found
(`observed`), and tests run every path with small arrays, for which they lower the values
(`lowered`). A lowered value holds in the current context only, as `numpy.errstate` does; it changes
which code is generated, and so never what a compiled module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from compiler.support.dataclass import dataclass

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class Threshold:
    """A number that sizes are compared with: its default, its unit, and what it decides.

    `small` is the value that tests lower it to, which arrays of some thousand elements cross.
    """

    name: str
    default: int
    unit: str
    effect: str
    small: int

    @property
    def value(self) -> int:
        """The number that code is generated with."""
        names = _OBSERVED.get()
        if names is not None:
            names.add(self.name)
        return _LOWERED.get().get(self.name, self.default)


_DEFINED: dict[str, Threshold] = {}
_NONE: Mapping[str, int] = MappingProxyType({})
_LOWERED: ContextVar[Mapping[str, int]] = ContextVar("lowered thresholds", default=_NONE)
_OBSERVED: ContextVar[set[str] | None] = ContextVar("observed thresholds", default=None)


def threshold(name: str, default: int, unit: str, effect: str, *, small: int) -> Threshold:
    """Define a threshold; ValueError if there is one of this name."""
    if name in _DEFINED:
        raise ValueError(f"a threshold {name!r} is defined already")
    _DEFINED[name] = created = Threshold(name, default, unit, effect, small)
    return created


def all_thresholds() -> dict[str, Threshold]:
    """The thresholds of all modules that are imported, by name, in alphabetical order."""
    return {name: _DEFINED[name] for name in sorted(_DEFINED)}


def lowered_values() -> Mapping[str, int]:
    """The thresholds lowered in this context, for the keys of caches of generated code."""
    return _LOWERED.get()


@contextmanager
def lowered(values: Mapping[str, int]) -> Generator[None]:
    """Generate code with other values of some thresholds, by name.

    Raises ValueError for a name that no threshold has, and for values below 1.
    """
    for name, value in values.items():
        if name not in _DEFINED or value < 1:
            raise ValueError(f"{name}={value}: no such threshold, or a value below 1")
    token = _LOWERED.set(MappingProxyType({**_LOWERED.get(), **values}))
    try:
        yield
    finally:
        _LOWERED.reset(token)


@contextmanager
def observed() -> Generator[set[str]]:
    """Collect the names of the thresholds that code generation compares sizes with."""
    names = set[str]()
    token = _OBSERVED.set(names)
    try:
        yield names
    finally:
        _OBSERVED.reset(token)


def cached_by_thresholds(maxsize: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Cache a function of hashable arguments that compares sizes with thresholds.

    Results are cached for their lowered values, and not while comparisons are observed.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @lru_cache(maxsize)
        def cached(values: Hashable, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return function(*args, **kwargs)

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if _OBSERVED.get() is not None:
                return function(*args, **kwargs)
            return cached(frozenset(_LOWERED.get().items()), *args, **kwargs)

        return call

    return decorate
