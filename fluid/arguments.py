"""What users call takes what its signature says: anything else is told before anything is done.

The annotations of a function are what is checked, so nothing is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

__all__ = ["ArgumentError", "typed"]

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS: Mapping[Any, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.number),
    bool: (int, np.bool_, type(None)),
}
_SHOWN = (int, float, str, bytes, list, tuple, dict, np.generic, np.ndarray)


class ArgumentError(TypeError, ValueError):
    """An argument is of another type than its function takes; the reference raises either."""


def typed(function: F) -> F:
    """The function, which holds its arguments against its annotations.

    Raises ArgumentError naming the first that does not fit.

    >>> typed(_example)(1, [2, "a"])
    Traceback (most recent call last):
    fluid.arguments.ArgumentError: The type of 'shape[1]' in _example must be int, but received str 'a'
    """  # noqa: E501

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        hints = _hints(function)
        for name, value in (*zip(hints, args, strict=False), *kwargs.items()):
            wrong = _misfit(name, value, hints.get(name, Any))
            if wrong is not None:
                raise ArgumentError(_sentence(function, *wrong))
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """What each parameter takes, in order; Any where nothing is said, as of `self`."""
    found = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return {each.name: found.get(each.name, Any) for each in named}


def _misfit(name: str, value: Any, hint: Any) -> tuple[str, Any, Any] | None:
    """What does not fit, the argument or an item of it: its name, itself, what it should be."""
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        lists = [each for each in args if get_origin(each) is Sequence]
        if any(_misfit(name, value, each) is None for each in args):
            return None
        return _misfit(name, value, lists[0]) if lists and _is_list(value) else (name, value, hint)
    if kind is Sequence:
        if not _is_list(value):
            return name, value, hint
        found = (_misfit(f"{name}[{i}]", each, args[0]) for i, each in enumerate(value))
        return next(filter(None, found), None)
    fits = kind in (Any, tuple) or isinstance(value, _NUMBERS.get(kind, kind))
    return None if fits else (name, value, hint)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _sentence(function: Callable[..., Any], name: str, value: Any, hint: Any) -> str:
    where = function.__qualname__.removesuffix(".__init__")
    kind = type(value).__name__
    given = f"{kind} {value!r:.60}" if isinstance(value, _SHOWN) else kind
    return f"The type of '{name}' in {where} must be {_text(hint)}, but received {given}"


def _text(hint: Any) -> str:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(_text(each) for each in args if each is not type(None))
    if kind is Sequence:
        return f"list of {_text(args[0]).replace(' or ', ' and ')}"
    return str(getattr(kind, "__name__", kind))


def _example(size: int, shape: Sequence[int]) -> None:
    """For the example above."""
