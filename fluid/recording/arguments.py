"""Argument checking of public functions against their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import (
    Annotated,
    Any,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from compiler.ir.program import VarDesc
from compiler.ir.types import Array
from compiler.support.tracebacks import hide_frames, passes_arguments
from fluid.recording.narrowing import is_sequence

__all__ = ["UNCHECKED", "ArgumentError", "array_hint", "is_numpy", "typed"]

F = TypeVar("F", bound=Callable[..., object])

UNCHECKED = "UNCHECKED"
"""Marks an annotation, `Annotated[…, UNCHECKED]`, that the function itself checks, or nobody."""

_NUMBERS: Mapping[object, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.number),
    bool: (bool, np.bool_, type(None)),
    tuple: (tuple, list),
}
_WRITTEN = (int, float, str, bytes, list, tuple, dict, np.generic, np.ndarray)
"""Types whose values are shown in messages; of anything else the type is shown."""
_SHORT = 3
"""The largest number of elements of an array that is shown; of larger ones the shape is."""


def is_numpy(value: object) -> TypeGuard[np.generic | Array]:
    """Whether an argument is an array or a scalar of NumPy."""
    return isinstance(value, np.generic | np.ndarray)


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
        return cast(F, _typed_methods(function))

    known: dict[str, set[object]] = {}
    names: list[str] = []

    @passes_arguments
    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            if _are_known(known, names, args, kwargs):
                return function(*args, **kwargs)
            where = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            hints = _hints(function)
            arguments = [*zip(hints, args, strict=False), *kwargs.items()]
            for name, value in arguments:
                _check(where, name, value, hints.get(name, object))
            plain = map(_plain, args, [*hints.values()][: len(args)])
            named = {name: _plain(value, hints.get(name, object)) for name, value in kwargs.items()}
            names[:] = hints
            for name, value in arguments:
                if (form := _form(value)) is not None and "bool" not in str(hints.get(name)):
                    known.setdefault(name, set()).add(form)
            return function(*plain, *args[len(hints) :], **named)
        except Exception as error:
            hide_frames(error)
            raise

    return cast(F, call)


_PLAIN = (str, float, int, bool, type(None))


def _are_known(
    known: Mapping[str, set[object]],
    names: Sequence[str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> bool:
    """Whether arguments of the same forms have passed before."""
    if not names or len(args) > len(names):
        return False
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        forms = known.get(name)
        if forms is None or (value.__class__ not in forms and _form(value) not in forms):
            return False
    return True


def _form(value: object) -> object:
    """What decides whether a value fits an annotation: its class, and that of a list's items.

    None for values that are to be checked themselves, such as those of NumPy.
    """
    cls = value.__class__
    if cls in _PLAIN or isinstance(value, VarDesc):
        return cls
    if (cls is list or cls is tuple) and value:
        items = cast("Sequence[object]", value)
        first = items[0].__class__
        if first not in _PLAIN and not isinstance(items[0], VarDesc):
            return None
        for item in items:
            if item.__class__ is not first:
                return None
        return cls, first
    return None


def _typed_methods(cls: type[object]) -> type[object]:
    for name, method in vars(cls).copy().items():
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, typed(method))
    return cls


@cache
def _hints(function: Callable[..., object]) -> dict[str, object]:
    """The type of each parameter, in order; `object` without an annotation, as for `self`."""
    type_hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    named = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    return {name: type_hints.get(name, object) for name in named}


# ---- what fits an annotation --------------------------------------------------------------------


def _check(where: str, name: str, value: object, hint: object) -> None:
    wrong = _misfit(name, value, hint)
    if wrong is not None:
        part, entry, wanted = wrong
        hint = array_hint(entry) if "Variable" in _text(wanted) else ""
        raise ArgumentError(
            f"The type of '{part}' in {where} must be {_text(wanted)}, "
            f"but received {_shown(entry)}{hint}"
        )


def _misfit(name: str, value: object, hint: object) -> tuple[str, object, object] | None:
    """The argument or item that does not match: its name, its value, the expected type."""
    kind, args = _kind(hint), get_args(hint)
    if kind is Union or kind is UnionType:
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


def _kind(hint: object) -> object:
    """The origin of a generic annotation: `Sequence` of `Sequence[int]`, `ndarray` of `NDArray`.

    A type alias of Python 3.12 (`NDArray` of NumPy 2.5) is resolved to its value. What is not
    checked is `object`: that itself, Any and what is `UNCHECKED`.
    """
    kind = get_origin(hint) or hint
    if kind is Any or (kind is Annotated and UNCHECKED in getattr(hint, "__metadata__", ())):
        return object
    return _kind(getattr(kind, "__value__", None)) if hasattr(kind, "__value__") else kind


def _is(value: object, kind: object) -> bool:
    if kind is bool and isinstance(value, int) and value in (0, 1):
        return True
    kinds = _NUMBERS.get(kind) or ((kind,) if isinstance(kind, type) else ())
    return isinstance(value, kinds)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return is_sequence(value) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _plain(value: object, hint: object) -> object:
    """Convert a NumPy number, or a list of them, to Python's."""
    if is_sequence(value) and any(isinstance(item, np.generic) for item in value):
        return [_plain(item, hint) for item in value]
    return value.tolist() if is_numpy(value) and not _accepts_arrays(hint) else value


def _accepts_arrays(hint: object) -> bool:
    """Whether NumPy values fit an annotation as they are."""
    kind, kinds = _kind(hint), [_kind(arg) for arg in get_args(hint)]
    if kind is Union or kind is UnionType:
        return object in kinds or np.ndarray in kinds
    return kind is object or kind is np.ndarray or np.ndarray in kinds


# ---- messages -----------------------------------------------------------------------------------


def _shown(value: object) -> str:
    kind = type(value).__name__
    if is_numpy(value) and value.size > _SHORT:
        return f"{kind} of shape {value.shape} and type {value.dtype}"
    return f"{kind} {value!r:.60}" if isinstance(value, _WRITTEN) else kind


def array_hint(value: object) -> str:
    """How an array becomes a variable, for the end of a message; empty for other values."""
    if not isinstance(value, np.ndarray):
        return ""
    return (
        "; fluid.layers.assign(array) makes a variable of it, and "
        "fluid.dygraph.to_variable(array) in eager mode"
    )


def _text(hint: object) -> str:
    kind, args = _kind(hint), get_args(hint)
    if kind is Union or kind is UnionType:
        return " or ".join(_text(arg) for arg in args if arg is not type(None))
    if kind is Sequence:
        return f"list of {_text(args[0]).replace(' or ', ' and ')}"
    return str(getattr(kind, "__name__", kind))


def _example(  # pyright: ignore[reportUnusedFunction] - for the example of `typed`
    size: int, shape: Sequence[int]
) -> None:
    """For the example above."""
