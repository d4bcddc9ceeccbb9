"""Argument checks of layers, with messages that name the argument."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.types import DType
from fluid.recording.annotations import DTypeLike
from fluid.recording.arguments import array_hint, is_numpy
from fluid.recording.variable import Variable, VarType, convert_np_dtype_to_dtype_

__all__ = [
    "AssertedShapeError",
    "AxisError",
    "SizesError",
    "asserting_shapes",
    "check_dtype",
    "check_type",
    "check_variable",
    "check_variable_and_dtype",
    "convert_dtype",
]


class SizesError(ValueError, AssertionError):
    """Sizes that are not a shape; an assertion in the reference."""


class AxisError(IndexError):
    """An axis that a variable does not have."""


class AssertedShapeError(ShapeError, AssertionError):
    """Mismatched shapes in a layer where the reference asserts that they match."""


_NAMES = {dtype: dtype.numpy_name for dtype in DType if dtype is not DType.TOKEN}
_VAR_TYPE_NAMES: dict[object, str] = {VarType(dtype.code): name for dtype, name in _NAMES.items()}


@contextmanager
def asserting_shapes() -> Generator[None]:
    """Convert a ShapeError of an appended op to one that is also an AssertionError."""
    try:
        yield
    except ShapeError as error:
        raise AssertedShapeError(
            error.message, op=error.op, source=error.source, hint=error.hint
        ) from None


FLOATS = ("float16", "float32", "float64", "bfloat16")


def convert_dtype(dtype: DTypeLike) -> str:
    """The NumPy name of a dtype in any notation; raises ValueError if it is none.

    >>> convert_dtype(5), convert_dtype("int64")
    ('float32', 'int64')
    """
    if dtype.__class__ is VarType:
        name = _VAR_TYPE_NAMES.get(dtype)
        if name is not None:
            return name
    return _NAMES[DType.of(convert_np_dtype_to_dtype_(dtype))]


def check_type(
    input: object,
    input_name: str,
    expected_type: type | tuple[type, ...],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise TypeError if an argument of a layer is not of an expected type; NumPy numbers count
    too.

    `extra_message` is appended to the message, as in the other checks.
    """
    if isinstance(input, expected_type):
        return
    received = type(input).__name__
    kinds = expected_type if isinstance(expected_type, tuple) else (expected_type,)
    plain: object = input.item() if is_numpy(input) and isinstance(input, np.number) else input
    if not isinstance(plain, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"The type of '{input_name}' in {op_name} must be {wanted}, "
            f"but received {received}{extra_message and ' ' + extra_message}"
            f"{array_hint(plain) if Variable in kinds else ''}"
        )


def check_variable(value: object, name: str, op: str) -> Variable:
    """Return an argument of a layer; raises TypeError if it is not a Variable."""
    if not isinstance(value, Variable):
        check_type(value, name, Variable, op)
        assert isinstance(value, Variable)
    return value


def check_dtype(
    input_dtype: DTypeLike,
    input_name: str,
    expected_dtype: Collection[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise TypeError if a dtype is not among the expected ones."""
    if convert_dtype(input_dtype) not in expected_dtype:
        wanted = ", ".join(expected_dtype)
        raise TypeError(
            f"The data type of '{input_name}' in {op_name} must be one of {wanted}, "
            f"but received {convert_dtype(input_dtype)}{extra_message and ' ' + extra_message}"
        )


def check_variable_and_dtype(
    input: object,
    input_name: str,
    expected_dtype: Collection[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise TypeError if an argument is not a Variable or has an unexpected dtype."""
    variable = check_variable(input, input_name, op_name)
    check_dtype(variable.dtype, input_name, expected_dtype, op_name, extra_message)
