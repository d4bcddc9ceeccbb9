"""Argument checking of public functions against their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from compiler.support.tracebacks import hide_frames, passes_arguments

__all__ = ["UNCHECKED", "ArgumentError", "typed"]

F = TypeVar("F", bound=Callable[..., Any])

UNCHECKED = "UNCHECKED"
"""Marks an annotation, `Annotated[…, UNCHECKED]`, that the function itself checks, or nobody."""

_NUMBERS: Mapping[Any, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.number),
    bool: (bool, np.bool_, type(None)),
    tuple: (tuple, list),
}
_WRITTEN = (int, float, str, bytes, list, tuple, dict, np.generic, np.ndarray)
"""Types whose values are shown in messages; of anything else the type is shown."""


class ArgumentError(TypeError, ValueError, AssertionError):
    """An argument of a wrong type or value; the reference raises one of these classes."""


def typed(function: F) -> F:
    """Wrap a function, or the methods of a class, to check arguments against their annotations.

    Errors show only the user's frames (`compiler.support.tracebacks`).

    NumPy numbers and lists of them are converted to Python's. Raises ArgumentError naming the
    argument that does not match.

    >>> typed(_example)(1, [2, "a"])
    Traceback (most recent call last):
    fluid.recording.arguments.ArgumentError: The type of 'shape[1]' in _example must be int, but received str 'a'
    """  # noqa: E501
    if isinstance(function, type):
        for name, method in vars(function).copy().items():
            if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
                setattr(function, name, typed(method))
        return function

    @passes_arguments
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            where = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            hints = _hints(function)
            arguments = [*zip(hints, args, strict=False), *kwargs.items()]
            for name, value in arguments:
                _check(where, name, value, hints.get(name, Any))
            plain = map(_plain, args, [*hints.values()][: len(args)])
            named = {name: _plain(value, hints.get(name, Any)) for name, value in kwargs.items()}
            return function(*plain, *args[len(hints) :], **named)
        except Exception as error:
            hide_frames(error)
            raise

    return call  # type: ignore[return-value]


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter, in order; Any without an annotation, as for `self`."""
    type_hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    named = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    return {name: type_hints.get(name, Any) for name in named}


# ---- what fits an annotation --------------------------------------------------------------------


def _check(where: str, name: str, value: Any, hint: Any) -> None:
    wrong = _misfit(name, value, hint)
    if wrong is not None:
        part, entry, wanted = wrong
        raise ArgumentError(
            f"The type of '{part}' in {where} must be {_text(wanted)}, but received {_shown(entry)}"
        )


def _misfit(name: str, value: Any, hint: Any) -> tuple[str, Any, Any] | None:
    """The argument or item that does not match: its name, its value, the expected type."""
    kind, args = _kind(hint), get_args(hint)
    if kind in (Union, UnionType):
        lists = [arg for arg in args if get_origin(arg) is Sequence]
        if any(_misfit(name, value, arg) is None for arg in args):
            return None
        return _misfit(name, value, lists[0]) if lists and _is_list(value) else (name, value, hint)
    if kind is Sequence:
        if not _is_list(value):
            return name, value, hint
        misfits = (_misfit(f"{name}[{i}]", item, args[0]) for i, item in enumerate(value))
        return next(filter(None, misfits), None)
    return None if _is(value, kind) else (name, value, hint)


def _kind(hint: Any) -> Any:
    """The origin of a generic annotation: `Sequence` of `Sequence[int]`, `ndarray` of `NDArray`.

    A type alias of Python 3.12 (`NDArray` of NumPy 2.5) is resolved to its value; an annotation
    that is `UNCHECKED` is Any, as is `object`.
    """
    if hint is object or (get_origin(hint) is Annotated and UNCHECKED in hint.__metadata__):
        return Any
    kind = get_origin(hint) or hint
    return _kind(kind.__value__) if hasattr(kind, "__value__") else kind


def _is(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    is_flag = kind is bool and isinstance(value, int) and value in (0, 1)
    return is_flag or isinstance(value, _NUMBERS.get(kind, kind))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _plain(value: Any, hint: Any) -> Any:
    """Convert a NumPy number, or a list of them, to Python's."""
    if isinstance(value, list | tuple) and any(isinstance(item, np.generic) for item in value):
        return [_plain(item, hint) for item in value]
    if not isinstance(value, np.generic | np.ndarray) or _accepts_arrays(hint):
        return value
    return value.tolist()


def _accepts_arrays(hint: Any) -> bool:
    """Whether NumPy values fit an annotation as they are."""
    kinds = [_kind(part) for part in (hint, *get_args(hint))]
    return Any in kinds or np.ndarray in kinds


# ---- messages -----------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} {value!r:.60}" if isinstance(value, _WRITTEN) else kind


def _text(hint: Any) -> str:
    kind, args = _kind(hint), get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(_text(arg) for arg in args if arg is not type(None))
    if kind is Sequence:
        return f"list of {_text(args[0]).replace(' or ', ' and ')}"
    return str(getattr(kind, "__name__", kind))


def _example(size: int, shape: Sequence[int]) -> None:
    """For the example above."""
