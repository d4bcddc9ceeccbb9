"""Names and methods that NumPy has removed, and the conversion of arrays to numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from fluid.compat.old_python.arrays import mend_arrays, numpy_version
from fluid.compat.old_python.names import Gone, with_names
from fluid.compat.old_python.notices import Notices

__all__ = ["mend_numpy"]

ALIASES = {"bool": bool, "float": float, "int": int, "object": object, "str": str}
"""NumPy's former aliases of types of Python, removed in 1.24; NumPy 2 has its own `bool`."""
SECONDS = {
    "NaN": "nan", "NAN": "nan", "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf",
    "float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_",
    "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all",
    "row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid", "round_": "round",
    "mat": "asmatrix", "bool8": "bool_", "object0": "object_", "str0": "str_", "int0": "intp",
    "uint0": "uintp", "longfloat": "longdouble", "typeDict": "sctypeDict",
    "AxisError": "exceptions.AxisError", "ComplexWarning": "exceptions.ComplexWarning",
    "RankWarning": "exceptions.RankWarning", "TooHardError": "exceptions.TooHardError",
    "VisibleDeprecationWarning": "exceptions.VisibleDeprecationWarning",
}  # fmt: skip
"""Second names of numbers, types and functions, and the names that NumPy has kept."""
RAGGED = "inhomogeneous shape"
"""Part of the error about lists of several lengths."""
OWN = ("compiler", "runtime", "fluid", "fleet")
_HERE = "fluid.compat.old_python.numpy_names"
OTHERS = {
    "NINF": Gone("NumPy 2", "-np.inf", f"{_HERE}:_NINF"),
    "asscalar": Gone("NumPy 1.23", "array.item()", f"{_HERE}:asscalar"),
    "asfarray": Gone("NumPy 2", "np.asarray(array, float)", f"{_HERE}:asfarray"),
    "msort": Gone("NumPy 2", "np.sort(array, axis=0)", f"{_HERE}:msort"),
    "complex": Gone("NumPy 1.24", "complex", "builtins:complex"),
    "long": Gone("NumPy 1.24", "int", "builtins:int"),
    "unicode": Gone("NumPy 1.24", "str", "builtins:str"),
    "math": Gone("NumPy 1.25", "the module math", "math:"),
    "warnings": Gone("NumPy 1.24", "the module warnings", "warnings:"),
}
"""Names that are more than another name, and modules that NumPy's had among its names."""
_NINF = -np.inf


def mend_numpy(numpy: ModuleType, notices: Notices) -> None:
    """Restore aliases, removed names, methods of arrays and their conversion to numbers."""
    for name in ALIASES.keys() - vars(numpy).keys():
        setattr(numpy, name, ALIASES[name])
    seconds = {old: Gone("NumPy 2", f"np.{new}", f"numpy:{new}") for old, new in SECONDS.items()}
    with_names(numpy, seconds | OTHERS, notices)
    mend_arrays(notices)
    vars(numpy)["array"] = _as_it_made_arrays(np.array, notices)
    if numpy_version() >= (2, 0):
        np.set_printoptions(legacy="1.25")
    if numpy_version() >= (2, 3):
        vars(numpy)["fromstring"] = _reading_bytes(np.fromstring, notices)


def _as_it_made_arrays(array: Callable[..., Any], notices: Notices) -> Callable[..., Any]:
    """`np.array` as before NumPy 1.24: `copy=False` copies if needed, and lists of several lengths
    become an array of objects, except for callers in our packages.
    """

    @wraps(array)
    def made(*args: Any, copy: Any = True, **kwargs: Any) -> Any:
        copy = None if copy is False else copy
        try:
            return array(*args, copy=copy, **kwargs)
        except ValueError as error:
            has_dtype = len(args) > 1 or "dtype" in kwargs
            if has_dtype or RAGGED not in str(error) or _is_ours(inspect.currentframe()):
                raise
            notices.tell("np.array of lists of several lengths", "NumPy 1.24", "dtype=object")
            return array(*args, copy=copy, dtype=object, **kwargs)

    return made


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a frame's caller is in one of our packages."""
    caller = frame and frame.f_back
    return caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] in OWN


def _reading_bytes(fromstring: Callable[..., Any], notices: Notices) -> Callable[..., Any]:
    """`np.fromstring` that also reads bytes, as before NumPy 2.3."""

    @wraps(fromstring)
    def read(string: Any, dtype: Any = float, count: int = -1, sep: str = "", **kwargs: Any) -> Any:
        if sep:
            return fromstring(string, dtype, count, sep=sep, **kwargs)
        notices.tell("np.fromstring of bytes", "NumPy 2.3", "np.frombuffer(bytes).copy()")
        data = string.encode() if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy() if len(data) else np.empty(0, dtype)

    return read


def asscalar(a: Any) -> object:
    """`np.asscalar`: the only element."""
    return np.asarray(a).item()


def asfarray(a: Any, dtype: Any = np.float64) -> Any:
    """`np.asfarray`: an array of floats."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def msort(a: Any) -> Any:
    """`np.msort`: sorted along the first axis."""
    return np.sort(a, axis=0)
