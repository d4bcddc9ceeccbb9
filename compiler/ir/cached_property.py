"""Properties that are computed once for each object, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(Generic[T]):
    """A property whose value is computed when it is first read and kept in the object's `__dict__`.

    As `functools.cached_property` of Python 3.12. That of 3.11 has a lock for all objects of a
    class: a child that was forked while another thread held it waits for ever. Two threads may
    both compute the value, which must then be the same.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value
