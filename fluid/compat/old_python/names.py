"""Removed names of modules, and their replacements."""

from __future__ import annotations

import base64
import collections
import collections.abc
import fractions
import inspect
import math
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["GONE", "Gone", "getargspec"]


@dataclass(frozen=True)
class Gone:
    """A removed name: the release that removed it, its replacement, and how to write that."""

    since: str
    value: object
    instead: str


class ArgSpec(NamedTuple):
    """What `inspect.getargspec` returned."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[object, ...] | None


def getargspec(func: Callable[..., object]) -> ArgSpec:
    """The parameters of a function; ValueError where it has keyword-only ones.

    >>> getargspec(lambda a, b=1, *c: a)
    ArgSpec(args=['a', 'b'], varargs='c', keywords=None, defaults=(1,))
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs:
        raise ValueError("getargspec: keyword-only parameters; use inspect.signature")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def _asscalar(a: ArrayLike) -> object:
    return np.asarray(a).item()


def _of_numpy() -> dict[str, Gone]:
    """Second names of numbers, types and functions, as far as NumPy still has the first."""
    seconds = {
        "NaN": "nan", "NAN": "nan", "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf",
        "float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_",
        "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all",
        "row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid",
    }  # fmt: skip
    entries = {
        old: Gone("NumPy 2", getattr(np, new), f"np.{new}")
        for old, new in seconds.items()
        if hasattr(np, new)
    }
    entries["NINF"] = Gone("NumPy 2", -np.inf, "-np.inf")
    entries["complex"] = Gone("NumPy 1.24", complex, "complex")
    entries["long"] = Gone("NumPy 1.24", int, "int")
    entries["unicode"] = Gone("NumPy 1.24", str, "str")
    entries["asscalar"] = Gone("NumPy 1.23", _asscalar, "array.item()")
    return entries


GONE: Mapping[ModuleType, Mapping[str, Gone]] = {
    collections: {
        name: Gone("Python 3.10", getattr(collections.abc, name), f"collections.abc.{name}")
        for name in cast(list[str], vars(collections.abc)["__all__"])
    },
    time: {"clock": Gone("Python 3.8", time.process_time, "time.process_time")},
    inspect: {"getargspec": Gone("Python 3.11", getargspec, "inspect.getfullargspec")},
    string: {
        "letters": Gone("Python 3", string.ascii_letters, "string.ascii_letters"),
        "lowercase": Gone("Python 3", string.ascii_lowercase, "string.ascii_lowercase"),
        "uppercase": Gone("Python 3", string.ascii_uppercase, "string.ascii_uppercase"),
        "maketrans": Gone("Python 3", str.maketrans, "str.maketrans"),
    },
    fractions: {"gcd": Gone("Python 3.9", math.gcd, "math.gcd")},
    base64: {
        "encodestring": Gone("Python 3.9", base64.encodebytes, "base64.encodebytes"),
        "decodestring": Gone("Python 3.9", base64.decodebytes, "base64.decodebytes"),
    },
    np: _of_numpy(),
}
"""What is gone, by the module that had it."""
