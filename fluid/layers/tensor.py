"""Making tensors: constants, parameters, copies, casts and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.checks import check_type, check_variable
from fluid.framework import Variable, convert_np_dtype_to_dtype_
from fluid.initializer import Constant, Initializer
from fluid.layer_helper import LayerHelper
from fluid.param_attr import ParamAttr

__all__ = [
    "assign",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "fill_constant",
    "ones",
    "sums",
    "zeros",
    "zeros_like",
]

_VALUES = {
    "bool": "bool_values",
    "float32": "fp32_values",
    "int32": "int32_values",
    "int64": "int64_values",
}


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable without a shape yet, to be written by `assign` or another layer."""
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Any:
    """A parameter of its own, for layers that users write."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name=name) if attr is None else attr
    return helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of the global block that the startup program fills with `value`."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    helper = LayerHelper("global_var")
    var = helper.create_global_variable(
        dtype=dtype, shape=shape, persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(float(value), force_cpu))
    return var


def cast(x: Variable, dtype: Any) -> Variable:
    """The same values in another element type."""
    check_variable(x, "x", "cast")
    helper = LayerHelper("cast")
    out = helper.create_variable_for_type_inference(dtype)
    attrs = {"in_dtype": x.dtype, "out_dtype": out.dtype}
    helper.append_op("cast", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of tensors of one shape, written to `out` if given."""
    helper = LayerHelper("sum", input=input)
    if out is None:
        out = helper.create_variable_for_type_inference(helper.input_dtype())
    terms = helper.multiple_input()
    helper.append_op("sum", inputs={"X": terms}, outputs={"Out": out}, attrs={"use_mkldnn": False})
    return out


def assign(input: Variable | np.ndarray, output: Variable | None = None) -> Variable:
    """A copy of a variable, or the elements of an array; written to `output` if given."""
    check_type(input, "input", (Variable, np.ndarray), "assign")
    helper = LayerHelper("assign")
    if output is None:
        output = helper.create_variable_for_type_inference(input.dtype)
    if isinstance(input, Variable):
        helper.append_op("assign", inputs={"X": input}, outputs={"Out": output})
    else:
        attrs = _array_attributes(input)
        helper.append_op("assign_value", outputs={"Out": output}, attrs=attrs)
    return output


def _array_attributes(array: np.ndarray) -> dict[str, Any]:
    if array.dtype.name not in _VALUES:
        known = ", ".join(_VALUES)
        raise TypeError(f"assign takes arrays of {known}, but received {array.dtype.name}")
    values = {_VALUES[array.dtype.name]: array.ravel().tolist()}
    return {"shape": list(array.shape), "dtype": convert_np_dtype_to_dtype_(array.dtype), **values}


def fill_constant(
    shape: Sequence[int],
    dtype: Any,
    value: float,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """A tensor with `value` everywhere, written to `out` if given."""
    check_type(shape, "shape", (list, tuple), "fill_constant")
    helper = LayerHelper("fill_constant")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    number = float(value) if out.element.is_float else int(value)
    attrs = {"shape": shape, "dtype": out.dtype, "force_cpu": force_cpu}
    attrs |= {"value": float(value), "str_value": str(number)}
    helper.append_op("fill_constant", outputs={"Out": out}, attrs=attrs)
    out.stop_gradient = True
    return out


def ones(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros in the shape of `x`, written to `out` if given."""
    check_variable(x, "x", "zeros_like")
    helper = LayerHelper("zeros_like")
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op("fill_zeros_like", inputs={"X": x}, outputs={"Out": out})
    out.stop_gradient = True
    return out
