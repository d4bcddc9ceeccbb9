"""Calls of NumPy's functions that it has refused since, or answered differently."""

from __future__ import annotations

import inspect
from builtins import sum as sum_of_iterator
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import FrameType
from typing import Any, cast

import numpy as np

from fluid.compat.old_python.notices import Notices

__all__ = ["ADAPTERS"]

Function = Callable[..., Any]
RAGGED = "inhomogeneous shape"
"""Part of the error about lists of several lengths."""
OWN = ("compiler", "runtime", "fluid", "fleet")


def _array(array: Function, notices: Notices) -> Function:
    """`np.array` as before NumPy 1.24: `copy=False` copies if needed, and lists of several lengths
    become an array of objects, except for callers in our packages.
    """

    @wraps(array)
    def array_as_before(*args: object, copy: object = True, **kwargs: object) -> object:
        copy = None if copy is False else copy
        try:
            return array(*args, copy=copy, **kwargs)
        except ValueError as error:
            has_dtype = len(args) > 1 or "dtype" in kwargs
            if has_dtype or RAGGED not in str(error) or _is_ours(inspect.currentframe()):
                raise
            notices.tell("np.array of lists of several lengths", "NumPy 1.24", "dtype=object")
            return array(*args, copy=copy, dtype=object, **kwargs)

    return array_as_before


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a frame's caller is in one of our packages."""
    caller = frame and frame.f_back
    return caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] in OWN


def _fromstring(fromstring: Function, notices: Notices) -> Function:
    """`np.fromstring` that also reads bytes, as before NumPy 2.3."""

    @wraps(fromstring)
    def read(
        string: Any, dtype: Any = float, count: int = -1, sep: str = "", **kwargs: Any
    ) -> object:
        if sep:
            return fromstring(string, dtype, count, sep=sep, **kwargs)
        notices.tell("np.fromstring of bytes", "NumPy 2.3", "np.frombuffer(bytes).copy()")
        data = string.encode() if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy() if len(data) else np.empty(0, dtype)

    return read


def _sum(total: Function, notices: Notices) -> Function:
    """`np.sum` that takes a generator, as before NumPy 2.4: the sum that Python computes."""

    @wraps(total)
    def summed(a: object, *args: object, **kwargs: object) -> object:
        if type(a) is not np.ndarray and isinstance(a, Iterator):
            notices.tell("np.sum of a generator", "NumPy 2.4", "sum(generator)")
            return sum_of_iterator(cast(Iterator[Any], a))
        return total(a, *args, **kwargs)

    return summed


def _stack(stack: Function, notices: Notices) -> Function:
    """`np.vstack` and its kin that take a generator or `map`, as before NumPy 1.24."""
    name: str = getattr(stack, "__name__", "")

    @wraps(stack)
    def stacked(arrays: object, *args: object, **kwargs: object) -> object:
        if isinstance(arrays, Iterator):
            notices.tell(f"np.{name} of a generator", "NumPy 1.24", f"np.{name}(list(generator))")
            arrays = list(cast(Iterator[object], arrays))
        return stack(arrays, *args, **kwargs)

    return stacked


def _unique(unique: Function, notices: Notices) -> Function:
    """`np.unique` whose inverse is one-dimensional without an axis, as before NumPy 2."""

    @wraps(unique)
    def unique_as_before(
        ar: Any, return_index: bool = False, return_inverse: bool = False, *args: Any, **kwargs: Any
    ) -> object:
        result = unique(ar, return_index, return_inverse, *args, **kwargs)
        axis = args[1] if len(args) > 1 else kwargs.get("axis")
        if not return_inverse or axis is not None or np.ndim(ar) < 2:
            return result
        at = 1 + bool(return_index)
        return (*result[:at], result[at].reshape(-1), *result[at + 1 :])

    return unique_as_before


def _keyword(old: str, new: str) -> Callable[[Function, Notices], Function]:
    """Adapter of a function that takes a keyword by its former name, if it takes it no more."""

    def adapt(function: Function, notices: Notices) -> Function:
        name: str = getattr(function, "__name__", "")

        @wraps(function)
        def called(*args: object, **kwargs: object) -> object:
            if old in kwargs and old not in inspect.signature(function).parameters:
                notices.tell(f"{old} of np.{name}", "NumPy 2.4", new)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called

    return adapt


ADAPTERS: Mapping[str, Callable[[Function, Notices], Function]] = {
    "array": _array,
    "fromstring": _fromstring,
    "sum": _sum,
    **dict.fromkeys(("vstack", "hstack", "dstack", "column_stack", "stack"), _stack),
    "unique": _unique,
    "reshape": _keyword("newshape", "shape"),
    **dict.fromkeys(
        ("percentile", "quantile", "nanpercentile", "nanquantile"),
        _keyword("interpolation", "method"),
    ),
}
"""The functions that are replaced, and what makes the replacement of each."""
