"""What users call is all or nothing: arguments fit the signature, and a call that fails undoes itself.

The annotations of a function say what it takes, so nothing is written twice: whatever does not fit
is an error that names the argument, before anything is appended. Where an error comes later, the
default programs are again what they were before the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fluid.framework import Variable, default_main_program, default_startup_program
from fluid.undo import undone_on_error

__all__ = ["ArgumentError", "checked", "checked_all"]

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS: Mapping[Any, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.number),
    bool: (int, np.bool_, type(None)),
}


class ArgumentError(TypeError, ValueError):
    """An argument is of another type than its function takes; the reference raises either."""


def checked(function: F) -> F:
    """The function, which holds its arguments against its annotations and undoes what fails.

    Raises ArgumentError naming the argument that does not fit.

    >>> checked(_example)(1, ["a"])
    Traceback (most recent call last):
    fluid.arguments.ArgumentError: The type of 'shape[0]' in _example must be int, but received str 'a'
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        hints = _hints(function)
        for name, value in (*zip(hints, args, strict=False), *kwargs.items()):
            wrong = _misfit(name, value, hints.get(name, Any))
            if wrong is not None:
                raise ArgumentError(_sentence(function.__name__, *wrong))
        with undone_on_error(default_main_program(), default_startup_program()):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def checked_all(names: Mapping[str, Any]) -> dict[str, Any]:
    """The public functions among what a module holds, each `checked`."""
    public = {name: value for name, value in names.items() if not name.startswith("_")}
    return {name: checked(value) for name, value in public.items() if inspect.isfunction(value)}


# ---- what fits an annotation


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


def _sentence(function: str, name: str, value: Any, hint: Any) -> str:
    kind = type(value).__name__
    given = kind if isinstance(value, Variable) or value is None else f"{kind} {value!r:.60}"
    return f"The type of '{name}' in {function} must be {_text(hint)}, but received {given}"


def _text(hint: Any) -> str:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(_text(each) for each in args if each is not type(None))
    if kind is Sequence:
        return f"list of {_text(args[0]).replace(' or ', ' and ')}"
    return str(getattr(kind, "__name__", kind))


def _example(size: int, shape: Sequence[int]) -> None:
    """For the example above."""
