"""Names and methods that NumPy has removed, and the conversion of arrays to numbers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from fluid.compat.old_python.arrays import mend_arrays, numpy_version
from fluid.compat.old_python.names import Gone, with_names
from fluid.compat.old_python.notices import Notices
from fluid.compat.old_python.numpy_calls import ADAPTERS

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
    if numpy_version() >= (2, 0):
        np.set_printoptions(legacy="1.25")
    for name, adapt in ADAPTERS.items():
        vars(numpy)[name] = adapt(vars(numpy)[name], notices)


def asscalar(a: object) -> object:
    """`np.asscalar`: the only element."""
    return np.asarray(a).item()


def asfarray(a: Any, dtype: Any = np.float64) -> object:
    """`np.asfarray`: an array of floats."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def msort(a: Any) -> object:
    """`np.msort`: sorted along the first axis."""
    return np.sort(a, axis=0)
