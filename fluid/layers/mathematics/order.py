"""Sorting, argmax/argmin and top-k, and tests for inf, nan and closeness."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.recording.checks import check_type, check_variable, check_variable_and_dtype

__all__ = [
    "allclose",
    "argmax",
    "argmin",
    "argsort",
    "has_inf",
    "has_nan",
    "isfinite",
    "topk",
]

_SORTED = ("float32", "float64", "uint8", "int16", "int32", "int64")


def _arg(op_type: str, x: Variable, axis: int) -> Variable:
    check_variable_and_dtype(x, "x", _SORTED, op_type.replace("_", ""))
    out = append_simple_op(op_type, {"X": x}, {"axis": axis}, dtype="int64")
    out.stop_gradient = True
    return out


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Index of the maximum along `axis`, int64; the axis is removed."""
    return _arg("arg_max", x, axis)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Index of the minimum along `axis`, int64; the axis is removed."""
    return _arg("arg_min", x, axis)


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the input sorted along `axis`, and the original index of each element (int64)."""
    check_variable_and_dtype(input, "input", _SORTED, "argsort")
    return _sorted("argsort", input, {"axis": axis, "descending": descending}, name)


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the `k` largest elements of the last axis in descending order, and their indices
    (int64).
    """
    check_variable(input, "input", "topk")
    if isinstance(k, Variable):
        return _sorted("top_k", input, {}, name, K=k)
    return _sorted("top_k", input, {"k": k}, name)


def _sorted(
    op_type: str, input: Variable, attrs: dict[str, int], name: str | None, **others: Variable
) -> tuple[Variable, Variable]:
    helper = LayerHelper(op_type, name=name)
    values = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    indices = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op(
        op_type,
        inputs={"X": input, **others},
        outputs={"Out": values, "Indices": indices},
        attrs=attrs,
    )
    return values, indices


def has_inf(x: Variable) -> Variable:
    """Return whether any element is infinite: [1]."""
    return append_simple_op("isinf", {"X": x})


def has_nan(x: Variable) -> Variable:
    """Return whether any element is NaN: [1]."""
    return append_simple_op("isnan", {"X": x})


def isfinite(x: Variable) -> Variable:
    """Return whether all elements are finite: [1]."""
    check_variable_and_dtype(x, "x", ("float32", "float64", "int32", "int64"), "isfinite")
    return append_simple_op("isfinite", {"X": x}, dtype="bool")


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Return whether `|input - other| <= atol + rtol * |other|` for all elements: [1].

    With `equal_nan`, NaN compares equal to NaN.
    """
    for argument, value, kind in (("rtol", rtol, float), ("atol", atol, float)):
        check_type(value, argument, kind, "allclose")
    check_type(equal_nan, "equal_nan", bool, "allclose")
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    inputs = {"Input": input, "Other": other}
    return append_simple_op("allclose", inputs, attrs, name=name, dtype="bool")
