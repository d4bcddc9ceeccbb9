"""Layer arguments for sizes and indices: integers, variables, or a list of both.

Ops take them as an attribute (integers), as a slot for one variable with all sizes, or as a slot
with one variable per size; in the last case integers become constants of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from compiler.ir.types import DType
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import SlotValue
from fluid.recording.checks import SizesError, check_dtype
from fluid.recording.narrowing import is_sequence

__all__ = ["Sizes", "has_variable", "size_operands", "shape_operands"]

Sizes = Variable | Sequence[int | Variable]
"""Sizes as the user passes them."""


def has_variable(values: object) -> bool:
    """Return whether a value is a variable or a list that contains one."""
    listed = values if is_sequence(values) else [values]
    return any(isinstance(value, Variable) for value in listed)


def size_operands(
    helper: LayerHelper,
    values: Sizes,
    name: str,
    slots: tuple[str, str],
    dtype: str = "int32",
    unknown: int = -1,
) -> tuple[dict[str, SlotValue], list[int]]:
    """Return the inputs of an op for these sizes, and the attribute (empty for a single variable).

    `slots` are the one for a variable with all sizes and the one for a variable per size; integers
    among variables become constants of type `dtype`, and variables are `unknown` in the attribute.
    Raises TypeError for anything but integers and variables.
    """
    if isinstance(values, Variable):
        check_dtype(values.dtype, name, ("int32", "int64"), helper.layer_type)
        values.stop_gradient = True
        return {slots[0]: values}, []
    if _are_ints(values):
        return {}, list(values)
    numbers = _numbers(values, name, helper.layer_type, unknown)
    if not has_variable(values):
        return {}, numbers
    return {slots[1]: [_tensor(helper, value, dtype) for value in values]}, numbers


def shape_operands(helper: LayerHelper, shape: Sizes) -> tuple[dict[str, SlotValue], list[int]]:
    """Return the inputs and attribute of an op for its output shape; int64 is cast to int32.

    Raises SizesError for an empty list.
    """
    if isinstance(shape, Variable):
        return {"ShapeTensor": _as_int32(helper, shape)}, []
    if not len(shape):
        raise SizesError(f"the shape of {helper.layer_type} needs one size or more")
    if _are_ints(shape):
        return {}, list(shape)
    numbers = _numbers(shape, "shape", helper.layer_type, -1)
    if not has_variable(shape):
        return {}, numbers
    tensors = [_as_int32(helper, _tensor(helper, size, "int32")) for size in shape]
    return {"ShapeTensorList": tensors}, numbers


def _are_ints(values: Sequence[int | Variable]) -> TypeGuard[Sequence[int]]:
    """Whether all sizes are plain numbers, which need no check."""
    return set(map(type, values)) == {int}


def _numbers(values: Sequence[int | Variable], name: str, op: str, unknown: int) -> list[int]:
    for value in values:
        if not isinstance(value, int | np.integer | Variable):  # pyright: ignore[reportUnnecessaryIsInstance] - 2.0
            raise TypeError(
                f"{name} of {op} must contain integers or variables, but received {value!r}"
            )
    return [unknown if isinstance(value, Variable) else int(value) for value in values]


def _tensor(helper: LayerHelper, value: int | Variable, dtype: str) -> Variable:
    """Return a variable for a size, marked to stop gradients."""
    if isinstance(value, Variable):
        value.stop_gradient = True
        return value
    out = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    attrs = {"shape": [1], "dtype": out.dtype, "force_cpu": True}
    attrs |= {"value": float(value), "str_value": str(value)}
    helper.append_op("fill_constant", outputs={"Out": out}, attrs=attrs)
    return out


def _as_int32(helper: LayerHelper, size: Variable) -> Variable:
    """Cast an int64 size to int32; TypeError if it is neither."""
    check_dtype(size.dtype, "shape", ("int32", "int64"), helper.layer_type)
    size.stop_gradient = True
    if size.element is DType.INT32:
        return size
    out = helper.create_variable_for_type_inference("int32", stop_gradient=True)
    attrs = {"in_dtype": size.dtype, "out_dtype": out.dtype}
    helper.append_op("cast", inputs={"X": size}, outputs={"Out": out}, attrs=attrs)
    return out
