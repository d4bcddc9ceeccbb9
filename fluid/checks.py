"""Checks of what users pass to layers, with messages that name the argument."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from compiler.ir.types import DType
from fluid.variable import Variable, convert_np_dtype_to_dtype_

__all__ = [
    "check_dtype",
    "check_type",
    "check_variable",
    "check_variable_and_dtype",
    "convert_dtype",
]

FLOATS = ("float16", "float32", "float64", "bfloat16")


def convert_dtype(dtype: Any) -> str:
    """The NumPy name of an element type, however it is given; ValueError where it is none.

    >>> convert_dtype(5), convert_dtype("int64")
    ('float32', 'int64')
    """
    return DType.of(convert_np_dtype_to_dtype_(dtype)).numpy.name


def check_type(value: Any, name: str, expected: type | tuple[type, ...], op: str) -> None:
    """TypeError where an argument of a layer is not of an expected type; NumPy's numbers are."""
    kinds = expected if isinstance(expected, tuple) else (expected,)
    plain = value.item() if isinstance(value, np.number) else value
    if not isinstance(plain, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"The type of '{name}' in {op} must be {wanted}, but received {type(value).__name__}"
        )


def check_variable(value: Any, name: str, op: str) -> None:
    """TypeError where an argument of a layer is no Variable."""
    check_type(value, name, Variable, op)


def check_dtype(dtype: Any, name: str, expected: Collection[str], op: str) -> None:
    """TypeError where an element type is not among the expected ones."""
    if convert_dtype(dtype) not in expected:
        wanted = ", ".join(expected)
        raise TypeError(
            f"The data type of '{name}' in {op} must be one of {wanted}, "
            f"but received {convert_dtype(dtype)}"
        )


def check_variable_and_dtype(value: Any, name: str, expected: Collection[str], op: str) -> None:
    """TypeError where an argument is no Variable or has an unexpected element type."""
    check_variable(value, name, op)
    check_dtype(value.dtype, name, expected, op)
