"""Arithmetic, element by element: of two tensors, of many, and with numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.tensor import assign
from fluid.recording.checks import check_dtype, check_type, check_variable_and_dtype

__all__ = [
    "addcmul",
    "clamp",
    "clip",
    "clip_by_norm",
    "elementwise_add",
    "elementwise_div",
    "elementwise_equal",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "pow",
    "scale",
    "sign",
    "sum",
]

_WIDE = ("float32", "float64", "int32", "int64")
_ANY_FLOAT = ("float16", "float32", "float64", "bfloat16")
_NUMBERS = ("float16", *_WIDE, "bfloat16")
_LARGEST = float(np.finfo(np.float32).max)


def _elementwise(
    op_type: str, x: Variable, y: Variable, axis: int, act: str | None, name: str | None
) -> Variable:
    check_variable_and_dtype(x, "x", _NUMBERS, op_type)
    check_variable_and_dtype(y, "y", _NUMBERS, op_type)
    attrs = {"axis": axis, "use_mkldnn": False}
    return append_simple_op(op_type, {"X": x, "Y": y}, attrs, name=name, act=act)


def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x + y`; the axes of the smaller one are those of the other from `axis` on."""
    return _elementwise("elementwise_add", x, y, axis, act, name)


def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x - y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_sub", x, y, axis, act, name)


def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x * y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_mul", x, y, axis, act, name)


def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x / y`, aligned like `elementwise_add`; whole numbers are cut off towards zero."""
    return _elementwise("elementwise_div", x, y, axis, act, name)


def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """The larger of x and y, aligned like `elementwise_add`."""
    return _elementwise("elementwise_max", x, y, axis, act, name)


def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """The smaller of x and y, aligned like `elementwise_add`."""
    return _elementwise("elementwise_min", x, y, axis, act, name)


def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x ** y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_pow", x, y, axis, act, name)


def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """What remains of `x / y`, aligned like `elementwise_add`.

    It has the sign of x for whole numbers, and of y for others.
    """
    return _elementwise("elementwise_mod", x, y, axis, act, name)


def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x / y` for whole numbers, cut off towards zero, aligned like `elementwise_add`."""
    return _elementwise("elementwise_floordiv", x, y, axis, act, name)


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Where x and y are equal: booleans."""
    helper = LayerHelper("elementwise_equal", name=name)
    out = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    attrs = {"force_cpu": False}
    helper.append_op("equal", inputs={"X": x, "Y": y}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- with numbers --------------------------------------------------------------------------------


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """`scale * x + bias`, or `scale * (x + bias)`."""
    check_variable_and_dtype(x, "x", (*_NUMBERS, "int8", "int16", "uint8"), "scale")
    inputs, attrs = {"X": x}, {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = float(scale)
    return append_simple_op("scale", inputs, attrs, name=name, act=act)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """`x ** factor`; a variable as factor is float32 [1], and has no gradient."""
    check_variable_and_dtype(x, "x", _WIDE, "pow")
    if not isinstance(factor, Variable):
        return append_simple_op("pow", {"X": x}, {"factor": float(factor)}, name=name)
    check_dtype(factor.dtype, "factor", ("float32",), "pow")
    factor.stop_gradient = True
    return append_simple_op("pow", {"X": x, "FactorTensor": factor}, name=name)


def sign(x: Variable | np.ndarray) -> Variable:
    """-1, 0 or 1, as x is below, at or above 0."""
    check_type(x, "x", (Variable, np.ndarray), "sign")
    helper = LayerHelper("sign")
    var = assign(x) if isinstance(x, np.ndarray) else x
    check_dtype(var.dtype, "x", _ANY_FLOAT, "sign")
    return helper.append_result("sign", {"X": var})


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """`x`, but nowhere below `min` or above `max`. The result is called `name` if that is given."""
    check_variable_and_dtype(x, "x", _ANY_FLOAT, "clip")
    return result_called(name, "clip", {"X": x}, {"min": float(min), "max": float(max)})


def clamp(
    input: Variable,
    min: float | Variable | None = None,
    max: float | Variable | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The input, but nowhere below `min` or above `max`, of which one may be left out.

    Variables as bounds are of one element. Written to `output` if given. Raises ValueError without
    any bound.
    """
    if min is None and max is None:
        raise ValueError("clamp needs a min or a max")
    helper = LayerHelper("clamp", input=input, name=name)
    inputs, attrs = {"X": input}, {"min": -_LARGEST, "max": _LARGEST}
    for bound, given in (("min", min), ("max", max)):
        check_type(given, bound, (float, int, Variable, type(None)), "clamp")
        if isinstance(given, Variable):
            check_dtype(given.dtype, bound, ("float32", "float64", "int32"), "clamp")
            given.stop_gradient = True
            inputs[bound.capitalize()] = given
        elif given is not None:
            attrs[bound] = float(given)
    if output is None:
        output = helper.create_variable_for_type_inference(helper.input_dtype())
    helper.append_op("clip", inputs=inputs, outputs={"Out": output}, attrs=attrs)
    return output


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """`x`, scaled down to the norm `max_norm` where it is longer.

    The result is called `name` if that is given.
    """
    check_variable_and_dtype(x, "x", ("float32",), "clip_by_norm")
    return result_called(name, "clip_by_norm", {"X": x}, {"max_norm": float(max_norm)})


def result_called(
    name: str | None, op_type: str, inputs: dict[str, Variable], attrs: dict[str, float]
) -> Variable:
    """Append an op whose result has the very name the user gives, or a usual one."""
    helper = LayerHelper(op_type, name=name)
    if name is None:
        return helper.append_result(op_type, inputs, attrs)
    out = helper.create_variable(name=name, dtype=inputs["X"].dtype, persistable=False)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


# ---- of several ----------------------------------------------------------------------------------


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """The sum of tensors of one shape."""
    terms = list(x) if isinstance(x, list | tuple) else [x]
    for term in terms:
        check_variable_and_dtype(term, "x", _WIDE, "sum")
    return append_simple_op("sum", {"X": terms}, {"use_mkldnn": False})


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """`input + value * tensor1 * tensor2`, written to `out` if given."""
    for argument, given in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(given, argument, _WIDE, "addcmul")
    check_type(value, "value", float if input.element.is_float else int, "addcmul")
    total = elementwise_add(input, elementwise_mul(tensor1, tensor2) * value)
    return total if out is None else assign(total, out)
