"""Arrays as NumPy had them before 2: conversion of one element to a number, and removed methods.

NumPy 2.4 raises TypeError where an array of shape [1] is converted to a number, as `float(loss)`
and `"%f" % np.exp([loss])` do; before, any array of one element converted. NumPy has no switch for
that, and most such arrays are results of NumPy's own functions, so the type `numpy.ndarray` itself
gets `__float__`, `__int__` and `__complex__` that accept them. Its attributes can only be set while
its flag IMMUTABLETYPE is cleared, in the memory of the type object. That is done in processes of
`fluid run` alone, and only if the object has the layout that this module expects.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluid.compat.old_python.notices import Notices

AnyArray: TypeAlias = NDArray[np.generic]

__all__ = ["converts", "mend_arrays", "numpy_version"]

IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE: attributes of the type cannot be set."""
WORDS = {4: "__basicsize__", 5: "__itemsize__", 21: "__flags__"}
"""Positions of fields in PyTypeObject of CPython, in words, and the attributes that show them."""


def mend_arrays(notices: Notices) -> None:
    """Let arrays of one element convert to numbers, and restore removed methods.

    Methods that this NumPy still has are left as they are. Does nothing where the types cannot be
    changed; `converts` says so.
    """
    if not has_expected_layout(np.ndarray):
        return
    with mutable(np.ndarray):
        for name in ("__float__", "__int__", "__complex__"):
            setattr(np.ndarray, name, _of_one_element(getattr(np.ndarray, name)))
        np.ndarray.__bool__ = _false_if_empty(np.ndarray.__bool__)
        _add_methods(np.ndarray, METHODS, notices)
    with mutable(np.generic):
        _add_methods(np.generic, {"tostring": METHODS["tostring"]}, notices)


def _add_methods(cls: type, methods: Mapping[str, Removed], notices: Notices) -> None:
    for name, removed in methods.items():
        if numpy_version() >= removed.version:
            setattr(cls, name, _reported(f"array.{name}()", removed, notices))


def numpy_version() -> tuple[int, int]:
    """The first two numbers of the version of NumPy.

    >>> numpy_version() >= (2, 0)
    True
    """
    major, minor = np.__version__.split(".")[:2]
    return int(major), int(minor)


def _reported(what: str, removed: Removed, notices: Notices) -> Callable[..., object]:
    """A method whose first use is reported."""
    since = f"NumPy {removed.version[0]}.{removed.version[1]}"

    @wraps(removed.method)
    def called(*args: object, **kwargs: object) -> object:
        notices.tell(what, since, removed.instead)
        return removed.method(*args, **kwargs)

    return called


def converts() -> bool:
    """Whether an array of shape [1] converts to a number in this process."""
    try:
        return float(np.ones(1)) == 1.0
    except (TypeError, DeprecationWarning):
        return False


def has_expected_layout(cls: type) -> bool:
    """Whether the fields of a type object are where this module expects them.

    False for builds of Python without the global lock, and for others than CPython.
    """
    if sys.implementation.name != "cpython":
        return False
    return all(_word(cls, at).value == getattr(cls, name) for at, name in WORDS.items())


def _word(cls: type, at: int) -> ctypes.c_size_t:
    return ctypes.c_size_t.from_address(id(cls) + at * ctypes.sizeof(ctypes.c_size_t))


@contextmanager
def mutable(cls: type) -> Generator[None]:
    """Clear the flag of a type that forbids to set attributes, within a `with` block."""
    flags = _word(cls, 21)
    was_immutable = flags.value & IMMUTABLE
    flags.value &= ~IMMUTABLE
    try:
        yield
    finally:
        flags.value |= was_immutable


def _of_one_element(
    convert: Callable[[AnyArray], object],
) -> Callable[[AnyArray], object]:
    """A conversion that takes arrays of any rank with one element, as before NumPy 2.4."""

    def converted(self: AnyArray) -> object:
        if self.size != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return convert(np.asarray(self).reshape(()))

    return converted


def _false_if_empty(
    is_true: Callable[[AnyArray], bool],
) -> Callable[[AnyArray], bool]:
    """The truth of an array, False for an empty one, as before NumPy 2.2."""

    def truth(self: AnyArray) -> bool:
        return bool(self.size) and is_true(self)

    return truth


# ---- removed methods ----------------------------------------------------------------------------


def _tostring(self: AnyArray, order: Any = "C") -> bytes:
    return self.tobytes(order)


def _itemset(self: AnyArray, *args: Any) -> None:
    *index, value = args
    if not index and self.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    if index and isinstance(index[0], tuple):
        self[index[0]] = value
    else:
        self.flat[index[0] if index else 0] = value


def _newbyteorder(self: AnyArray, new_order: Any = "S") -> object:
    return self.view(self.dtype.newbyteorder(new_order))


def _ptp(self: AnyArray, axis: Any = None, out: Any = None, keepdims: bool = False) -> object:
    return np.ptp(np.asarray(self), axis=axis, out=out, keepdims=keepdims)


class Removed(NamedTuple):
    """A removed method: the version of NumPy that has it no more, how to write it, and itself."""

    version: tuple[int, int]
    instead: str
    method: Callable[..., object]


METHODS: Mapping[str, Removed] = {
    "tostring": Removed((2, 3), "array.tobytes()", _tostring),
    "itemset": Removed((2, 0), "array[index] = value", _itemset),
    "newbyteorder": Removed((2, 0), "array.view(array.dtype.newbyteorder())", _newbyteorder),
    "ptp": Removed((2, 0), "np.ptp(array)", _ptp),
}
