"""Tensor creation: constants, ranges, parameters, copies and casts; sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.framework import Variable, convert_np_dtype_to_dtype_, device_guard
from fluid.initializer import Constant, Initializer
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.size_arguments import Sizes, shape_operands
from fluid.param_attr import ParamAttr
from fluid.recording.annotations import Array, Attributes, DTypeLike
from fluid.recording.checks import (
    check_dtype,
    check_type,
    check_variable,
    check_variable_and_dtype,
    convert_dtype,
)

__all__ = [
    "arange",
    "assign",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "eye",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "is_empty",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "sums",
    "zeros",
    "zeros_like",
]

NUMBERS = ("float32", "float64", "int32", "int64")
FILLED = ("bool", "float16", *NUMBERS, "bfloat16")

_VALUES = {
    "bool": "bool_values",
    "float32": "fp32_values",
    "int32": "int32_values",
    "int64": "int64_values",
}
LARGEST_ARRAY = 1024 * 1024
"""Maximum number of elements of an array stored as a constant of a program."""


# ---- variables ----------------------------------------------------------------------------------


def create_tensor(dtype: DTypeLike, name: str | None = None, persistable: bool = False) -> Variable:
    """Create a variable without a shape, to be written by `assign` or another layer."""
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: DTypeLike,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Any:
    """Create a parameter, for layers that users write."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name=name) if attr is None else attr
    return helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: float | Array,
    dtype: DTypeLike,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable of the global block that the startup program fills with the scalar
    `value`.
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    helper = LayerHelper("global_var")
    var = helper.create_global_variable(
        dtype=dtype, shape=shape, persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(float(np.asarray(value).item()), force_cpu))
    return var


# ---- copies -------------------------------------------------------------------------------------


def cast(x: Variable, dtype: DTypeLike) -> Variable:
    """Cast a tensor to another dtype."""
    check_variable_and_dtype(x, "x", (*FILLED, "uint8"), "cast")
    check_dtype(dtype, "dtype", (*FILLED, "int8", "uint8"), "cast")
    helper = LayerHelper("cast")
    out = helper.create_variable_for_type_inference(dtype)
    attrs = {"in_dtype": x.dtype, "out_dtype": out.dtype}
    helper.append_op("cast", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """Return the sum of tensors of one shape, written to `out` if not None."""
    check_type(input, "input", (Variable, tuple, list), "sums")
    helper = LayerHelper("sum", input=input)
    for variable in helper.multiple_input():
        check_dtype(variable.dtype, "input", NUMBERS, "sums")
    if out is None:
        out = helper.create_variable_for_type_inference(helper.input_dtype())
    terms = helper.multiple_input()
    helper.append_op("sum", inputs={"X": terms}, outputs={"Out": out}, attrs={"use_mkldnn": False})
    return out


def assign(input: Variable | Array, output: Variable | None = None) -> Variable:
    """Copy a variable, or the elements of an array, to `output` if not None.

    Raises TypeError for variables of int8, int16 and uint8, and for arrays of dtypes other than
    bool, float32, int32 and int64; ValueError for arrays of more than `LARGEST_ARRAY` elements.
    """
    check_type(input, "input", (Variable, np.ndarray), "assign")
    helper = LayerHelper("assign")
    attrs = {} if isinstance(input, Variable) else _array_attributes(input)
    if output is None:
        output = helper.create_variable_for_type_inference(input.dtype)
    if isinstance(input, Variable):
        check_dtype(input.dtype, "input", FILLED, "assign")
        helper.append_op("assign", inputs={"X": input}, outputs={"Out": output})
    else:
        helper.append_op("assign_value", outputs={"Out": output}, attrs=attrs)
    return output


def _array_attributes(array: Array) -> dict[str, object]:
    if array.dtype.name not in _VALUES:
        dtypes = ", ".join(_VALUES)
        raise TypeError(f"assign takes arrays of {dtypes}, but received {array.dtype.name}")
    if array.size > LARGEST_ARRAY:
        raise ValueError(f"assign takes up to {LARGEST_ARRAY} elements, but received {array.size}")
    values = {_VALUES[array.dtype.name]: array.ravel().tolist()}
    return {"shape": list(array.shape), "dtype": convert_np_dtype_to_dtype_(array.dtype), **values}


# ---- constant tensors ---------------------------------------------------------------------------


def _value_attributes(value: float, dtype: DTypeLike) -> dict[str, object]:
    """Return the attributes of a constant: as a float, and as text with full precision."""
    whole = convert_dtype(dtype) in ("int32", "int64")
    return {"value": float(value), "str_value": str(int(value) if whole else float(value))}


def fill_constant(
    shape: Sizes,
    dtype: DTypeLike,
    value: float | Variable,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """Return a tensor filled with `value`, written to `out` if not None.

    The shape is a list of integers and int32 or int64 variables of one element, or one such
    variable with all sizes. The value may be a variable of the same `dtype`.
    """
    check_dtype(dtype, "dtype", FILLED, "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    helper = LayerHelper("fill_constant")
    if isinstance(value, Variable):
        inputs, attrs = {"ValueTensor": value}, {"force_cpu": force_cpu}
    else:
        inputs, attrs = {}, {"force_cpu": force_cpu, **_value_attributes(value, dtype)}
    tensors, numbers = shape_operands(helper, shape)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    else:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], "fill_constant")
    attrs |= {"shape": numbers, "dtype": out.dtype}
    helper.append_op(
        "fill_constant", inputs={**inputs, **tensors}, outputs={"Out": out}, attrs=attrs
    )
    out.stop_gradient = True
    return out


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: DTypeLike,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Return a tensor filled with `value`, one size of which is that of another tensor.

    The size at `output_dim_idx` of `shape` is replaced by that of axis `input_dim_idx` of `input`,
    or by the number of its sequences.

    >>> import fluid
    >>> batch_like = fluid.data("batch_like", [None, 8])
    >>> fill_constant_batch_size_like(batch_like, [1, 3], "float32", 0.0).shape
    (-1, 3)
    """
    check_variable(input, "input", "fill_constant_batch_size_like")
    check_type(shape, "shape", (list, tuple), "fill_constant_batch_size_like")
    attrs = {"shape": list(shape), "dtype": convert_np_dtype_to_dtype_(dtype)}
    attrs |= {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx}
    attrs |= {"force_cpu": force_cpu, **_value_attributes(value, dtype)}
    out = append_simple_op("fill_constant_batch_size_like", {"Input": input}, attrs, dtype=dtype)
    out.stop_gradient = True
    return out


def ones(shape: Sequence[int | Variable], dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """Return a tensor of ones; ValueError for a shape without elements."""
    check_type(shape, "shape", (list, tuple), "ones")
    if math.prod(size for size in shape if not isinstance(size, Variable)) <= 0:
        raise ValueError(f"ones takes sizes of at least 1, but received {list(shape)}")
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int | Variable], dtype: DTypeLike, force_cpu: bool = False) -> Variable:
    """Return a tensor of zeros."""
    check_type(shape, "shape", (list, tuple), "zeros")
    return fill_constant(shape, dtype, 0.0, force_cpu)


def full(
    shape: Sizes,
    fill_value: float | Variable,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Return a tensor filled with `fill_value`; the default `dtype` is float32."""
    dtype = "float32" if dtype is None else dtype
    helper = LayerHelper("full", name=name)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    with device_guard(device):
        out = fill_constant(shape, dtype, fill_value, out=out)
    out.stop_gradient = stop_gradient
    return out


def _like(op_type: str, x: Variable, out: Variable | None, attrs: Attributes) -> Variable:
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS), op_type)
    helper = LayerHelper(op_type)
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    filling = "fill_any_like" if attrs else "fill_zeros_like"
    helper.append_op(filling, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Return zeros with the shape of `x`, written to `out` if not None."""
    out = _like("zeros_like", x, out, {})
    out.stop_gradient = True
    return out


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Return ones with the shape of `x`, written to `out` if not None."""
    return _like("ones_like", x, out, {"value": 1.0})


def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Return a tensor of the shape of `input` filled with `fill_value`; default dtype: its own."""
    check_variable(input, "input", "full_like")
    element = input.dtype if dtype is None else convert_np_dtype_to_dtype_(dtype)
    check_dtype(element, "dtype", FILLED, "full_like")
    helper = LayerHelper("full_like", name=name)
    if out is None:
        out = helper.create_variable_for_type_inference(element)
    attrs = {"value": fill_value, "dtype": element}
    helper.append_op("fill_any_like", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    out.stop_gradient = stop_gradient
    return out


# ---- ranges -------------------------------------------------------------------------------------


def _number(value: float | Variable, dtype: DTypeLike) -> Variable:
    return value if isinstance(value, Variable) else fill_constant([1], dtype, value)


def range(
    start: float | Variable, end: float | Variable, step: float | Variable, dtype: DTypeLike
) -> Variable:
    """Return the vector `start`, `start + step`, … up to but excluding `end`.

    >>> import fluid
    >>> fluid.layers.range(0, 10, 2, "int32").shape
    (-1,)
    """
    check_dtype(dtype, "dtype", NUMBERS, "range")
    numbers: list[Variable] = []
    for name, value in (("start", start), ("end", end), ("step", step)):
        check_type(value, name, (float, int, Variable), "range")
        number = _number(value, dtype)
        same = number.dtype == convert_np_dtype_to_dtype_(dtype)
        numbers.append(number if same else cast(number, dtype))
    out = append_simple_op("range", dict(zip(("Start", "End", "Step"), numbers, strict=True)))
    out.stop_gradient = True
    return out


def arange(
    start: float | Variable,
    end: float | Variable,
    step: float | Variable = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Variable:
    """`range` with a default `dtype` of float32."""
    return range(start, end, step, "float32" if dtype is None else dtype)


def linspace(
    start: float | Variable, stop: float | Variable, num: int | Variable, dtype: DTypeLike
) -> Variable:
    """Return `num` evenly spaced values from `start` to `stop` inclusive, float32 or float64."""
    for name, value in (("start", start), ("stop", stop), ("num", num)):
        check_type(value, name, (Variable, float, int), "linspace")
        if isinstance(value, Variable):
            dtypes = ("int32",) if name == "num" else ("float32", "float64")
            check_dtype(value.dtype, name, dtypes, "linspace")
    inputs = {"Start": _number(start, dtype), "Stop": _number(stop, dtype)}
    return append_simple_op("linspace", inputs | {"Num": _number(num, "int32")})


# ---- others -------------------------------------------------------------------------------------


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sequence[int] | None = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Return an identity matrix, repeated over the leading axes `batch_shape`.

    >>> import fluid
    >>> eye(2, 3, batch_shape=[4]).shape
    (4, 2, 3)
    """
    columns = num_rows if num_columns is None else num_columns
    for name, value in (("num_rows", num_rows), ("num_columns", columns)):
        is_number = isinstance(value, int)  # pyright: ignore[reportUnnecessaryIsInstance] - 2.0
        if not is_number or value < 0:
            raise TypeError(f"{name} of eye must be a non-negative number, not {value!r}")
    if batch_shape is not None and not (isinstance(batch_shape, list) and min(batch_shape) > 0):
        raise TypeError(
            f"batch_shape of eye must be a list of sizes of at least 1: {batch_shape!r}"
        )
    helper = LayerHelper("eye")
    out = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    attrs = {"num_rows": num_rows, "num_columns": columns, "dtype": out.dtype}
    helper.append_op("eye", outputs={"Out": out}, attrs=attrs)
    for size in reversed(batch_shape or []):
        stacked = LayerHelper("stack")
        out = stacked.append_result("stack", {"X": [out] * size}, {"axis": 0}, slot="Y")
    return out


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Return whether a tensor has no elements, bool [1], written to `cond` if not None."""
    check_variable_and_dtype(x, "x", NUMBERS, "is_empty")
    helper = LayerHelper("is_empty")
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    check_variable_and_dtype(cond, "cond", ["bool"], "is_empty")
    helper.append_op("is_empty", inputs={"X": x}, outputs={"Out": cond})
    return cond
