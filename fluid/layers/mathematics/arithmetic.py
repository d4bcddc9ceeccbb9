"""Elementwise arithmetic on tensors and scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.tensor import assign
from fluid.recording.annotations import Array, Attributes
from fluid.recording.checks import check_dtype, check_type, check_variable, check_variable_and_dtype

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

_WITHOUT_HALF = ("float32", "float64", "int32", "int64")
_ANY_FLOAT = ("float16", "float32", "float64", "bfloat16")
_NUMBERS = ("float16", *_WITHOUT_HALF, "bfloat16")
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
    """Return `x + y`; the smaller operand is broadcast, its axes aligned with the other's from
    `axis`.
    """
    return _elementwise("elementwise_add", x, y, axis, act, name)


def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return `x - y`, broadcast like `elementwise_add`."""
    return _elementwise("elementwise_sub", x, y, axis, act, name)


def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return `x * y`, broadcast like `elementwise_add`."""
    return _elementwise("elementwise_mul", x, y, axis, act, name)


def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return `x / y`, broadcast like `elementwise_add`; integer division truncates towards zero."""
    return _elementwise("elementwise_div", x, y, axis, act, name)


def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return the elementwise maximum of x and y, broadcast like `elementwise_add`."""
    return _elementwise("elementwise_max", x, y, axis, act, name)


def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return the elementwise minimum of x and y, broadcast like `elementwise_add`."""
    return _elementwise("elementwise_min", x, y, axis, act, name)


def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return `x ** y`, broadcast like `elementwise_add`."""
    return _elementwise("elementwise_pow", x, y, axis, act, name)


def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return the remainder of `x / y`, broadcast like `elementwise_add`.

    The result has the sign of x for integers and the sign of y for floats.
    """
    return _elementwise("elementwise_mod", x, y, axis, act, name)


def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """Return the integer quotient of `x / y`, truncated towards zero, broadcast like
    `elementwise_add`.
    """
    return _elementwise("elementwise_floordiv", x, y, axis, act, name)


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return `x == y` elementwise, as booleans."""
    helper = LayerHelper("elementwise_equal", name=name)
    out = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    attrs = {"force_cpu": False}
    helper.append_op("equal", inputs={"X": x, "Y": y}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- with scalars -------------------------------------------------------------------------------


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return `scale * x + bias`, or `scale * (x + bias)` if not `bias_after_scale`."""
    check_variable_and_dtype(x, "x", (*_NUMBERS, "int8", "int16", "uint8"), "scale")
    inputs, attrs = {"X": x}, {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = float(scale)
    return append_simple_op("scale", inputs, attrs, name=name, act=act)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """Return `x ** factor`; a Variable `factor` is float32 [1] and receives no gradient."""
    check_variable_and_dtype(x, "x", _WITHOUT_HALF, "pow")
    if not isinstance(factor, Variable):
        return append_simple_op("pow", {"X": x}, {"factor": float(factor)}, name=name)
    check_dtype(factor.dtype, "factor", ("float32",), "pow")
    factor.stop_gradient = True
    return append_simple_op("pow", {"X": x, "FactorTensor": factor}, name=name)


def sign(x: Variable | Array) -> Variable:
    """Return the sign of `x` elementwise: -1, 0 or 1."""
    check_type(x, "x", (Variable, np.ndarray), "sign")
    helper = LayerHelper("sign")
    var = assign(x) if isinstance(x, np.ndarray) else x
    check_dtype(var.dtype, "x", _ANY_FLOAT, "sign")
    return helper.append_result("sign", {"X": var})


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Clamp `x` to [`min`, `max`]. The result is named `name` if it is not None."""
    check_variable_and_dtype(x, "x", _ANY_FLOAT, "clip")
    return append_named(name, "clip", {"X": x}, {"min": float(min), "max": float(max)})


def clamp(
    input: Variable,
    min: float | Variable | None = None,
    max: float | Variable | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Clamp the input to [`min`, `max`]; at most one of them may be None.

    A Variable bound has one element. The result is written to `output` if it is not None. Raises
    ValueError if both bounds are None.
    """
    if min is None and max is None:
        raise ValueError("clamp needs a min or a max")
    helper = LayerHelper("clamp", input=input, name=name)
    inputs, attrs = {"X": input}, {"min": -_LARGEST, "max": _LARGEST}
    for bound, value in (("min", min), ("max", max)):
        check_type(value, bound, (float, int, Variable, type(None)), "clamp")
        if isinstance(value, Variable):
            check_dtype(value.dtype, bound, ("float32", "float64", "int32"), "clamp")
            value.stop_gradient = True
            inputs[bound.capitalize()] = value
        elif value is not None:
            attrs[bound] = float(value)
    if output is None:
        output = helper.create_variable_for_type_inference(helper.input_dtype())
    helper.append_op("clip", inputs=inputs, outputs={"Out": output}, attrs=attrs)
    return output


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Scale `x` down to the L2 norm `max_norm` if its norm is larger.

    The result is named `name` if it is not None.
    """
    check_variable_and_dtype(x, "x", ("float32",), "clip_by_norm")
    return append_named(name, "clip_by_norm", {"X": x}, {"max_norm": float(max_norm)})


def append_named(
    name: str | None, op_type: str, inputs: Mapping[str, Variable], attrs: Attributes
) -> Variable:
    """Append an op whose result is named exactly `name`, or a generated name if None."""
    helper = LayerHelper(op_type, name=name)
    if name is None:
        return helper.append_result(op_type, inputs, attrs)
    out = helper.create_variable(name=name, dtype=inputs["X"].dtype, persistable=False)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


# ---- sums of tensors ----------------------------------------------------------------------------


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """Return the elementwise sum of tensors of the same shape."""
    terms: list[Variable] = []
    for term in x if isinstance(x, list | tuple) else [x]:
        check_variable_and_dtype(term, "x", _WITHOUT_HALF, "sum")
        terms.append(check_variable(term, "x", "sum"))
    return append_simple_op("sum", {"X": terms}, {"use_mkldnn": False})


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return `input + value * tensor1 * tensor2`, written to `out` if it is not None."""
    for argument, operand in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(operand, argument, _WITHOUT_HALF, "addcmul")
    check_type(value, "value", float if input.element.is_float else int, "addcmul")
    total = elementwise_add(input, elementwise_mul(tensor1, tensor2) * value)
    return total if out is None else assign(total, out)
