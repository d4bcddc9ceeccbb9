"""Sizes and positions that layers take as numbers, as one variable, or as a list of both.

Ops take them in three ways: an attribute for numbers, a slot for a variable that lists them, and a
slot for a variable each. In the last case numbers become constants of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import DType
from fluid.checks import check_dtype
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper

__all__ = [
    "Sizes",
    "constant",
    "has_variable",
    "numbers_of",
    "spelled",
    "spelled_shape",
    "tensors_of",
]

Sizes = Variable | Sequence[int | Variable]
"""Numbers as users give them."""


def has_variable(values: Any) -> bool:
    """True for a variable, and for a list in which one stands."""
    listed = values if isinstance(values, list | tuple) else [values]
    return any(isinstance(each, Variable) for each in listed)


def numbers_of(values: Sequence[Any], name: str, op: str, unknown: int = -1) -> list[int]:
    """The numbers of a list, `unknown` for a variable; TypeError for anything else in it."""
    for each in values:
        if not isinstance(each, int | np.integer | Variable) or isinstance(each, bool):
            raise TypeError(
                f"{name} of {op} must hold whole numbers or variables, but received {each!r}"
            )
    return [unknown if isinstance(each, Variable) else int(each) for each in values]


def constant(helper: LayerHelper, number: int, dtype: str = "int32") -> Variable:
    """A variable of one number, made by the program."""
    out = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    attrs = {"shape": [1], "dtype": out.dtype, "force_cpu": True}
    attrs |= {"value": float(number), "str_value": str(number)}
    helper.append_op("fill_constant", outputs={"Out": out}, attrs=attrs)
    return out


def tensors_of(helper: LayerHelper, values: Sequence[Any], dtype: str = "int32") -> list[Variable]:
    """A variable for each; those that were given have no gradient from now on."""
    made = [v if isinstance(v, Variable) else constant(helper, int(v), dtype) for v in values]
    for each in made:
        each.stop_gradient = True
    return made


def spelled(
    helper: LayerHelper,
    values: Sizes,
    name: str,
    slots: tuple[str, str],
    dtype: str = "int32",
    unknown: int = -1,
) -> tuple[dict[str, Any], list[int]]:
    """What an op is given for sizes: inputs, and the attribute, empty where a variable lists them.

    `slots` are the one for a variable that lists them and the one for a variable each. Raises
    TypeError where there is something else than whole numbers among them.
    """
    if isinstance(values, Variable):
        check_dtype(values.dtype, name, ("int32", "int64"), helper.layer_type)
        values.stop_gradient = True
        return {slots[0]: values}, []
    numbers = numbers_of(values, name, helper.layer_type, unknown)
    given = {slots[1]: tensors_of(helper, values, dtype)} if has_variable(values) else {}
    return given, numbers


def spelled_shape(helper: LayerHelper, shape: Sizes) -> tuple[dict[str, Any], list[int]]:
    """What an op that makes a tensor is given for its shape; int64 variables are cast to int32.

    Raises ValueError for an empty list.
    """
    slots = ("ShapeTensor", "ShapeTensorList")
    if isinstance(shape, Variable):
        return spelled(helper, _narrow(helper, shape), "shape", slots)
    if not len(shape):
        raise ValueError(f"the shape of {helper.layer_type} needs one size or more")
    return spelled(helper, [_narrow(helper, each) for each in shape], "shape", slots)


def _narrow(helper: LayerHelper, size: Any) -> Any:
    """The same as int32, if it is a variable of int64."""
    if not isinstance(size, Variable) or size.element is not DType.INT64:
        return size
    out = helper.create_variable_for_type_inference("int32", stop_gradient=True)
    attrs = {"in_dtype": size.dtype, "out_dtype": out.dtype}
    helper.append_op("cast", inputs={"X": size}, outputs={"Out": out}, attrs=attrs)
    return out
