"""Counters, comparisons and logical operations."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.checks import check_type, check_variable_and_dtype

__all__ = [
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "less_equal",
    "less_than",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


_NUMBERS = ("float32", "float64", "int32", "int64")


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return `x + value` for a tensor of one element; updates `x` if `in_place`.

    >>> import fluid
    >>> step = fluid.layers.fill_constant([1], "int64", 0)
    >>> fluid.layers.increment(step) is step
    True
    """
    check_variable_and_dtype(x, "x", _NUMBERS, "increment")
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    attrs = {"step": float(value)}
    helper.append_op("increment", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- comparisons and logic ----------------------------------------------------------------------


def _append_comparison(
    op_type: str, x: Variable, y: Variable, cond: Variable | None, **attrs: object
) -> Variable:
    """Append a comparison, writing to `cond` if not None; its result stops gradients."""
    for name, var in (("x", x), ("y", y)):
        check_variable_and_dtype(var, name, _NUMBERS, op_type)
    check_type(cond, "cond", (Variable, type(None)), op_type)
    helper = LayerHelper(op_type)
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    helper.append_op(op_type, inputs={"X": x, "Y": y}, outputs={"Out": cond}, attrs=attrs)
    return cond


def _append_logical(
    op_type: str, inputs: dict[str, Variable], out: Variable | None, name: str | None
) -> Variable:
    """Append a logical op, writing to `out` if not None."""
    for slot, var in inputs.items():
        check_variable_and_dtype(var, slot.lower(), ["bool"], op_type)
    check_type(out, "out", (Variable, type(None)), op_type)
    helper = LayerHelper(op_type, name=name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool")
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out})
    return out


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """Return `x < y` elementwise, written to `cond` if not None."""
    check_type(force_cpu, "force_cpu", (bool, type(None)), "less_than")
    return _append_comparison("less_than", x, y, cond, force_cpu=force_cpu)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return `x <= y` elementwise, written to `cond` if not None."""
    return _append_comparison("less_equal", x, y, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return `x > y` elementwise, written to `cond` if not None."""
    return _append_comparison("greater_than", x, y, cond)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return `x >= y` elementwise, written to `cond` if not None."""
    return _append_comparison("greater_equal", x, y, cond)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return `x == y` elementwise, written to `cond` if not None."""
    return _append_comparison("equal", x, y, cond)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """Return `x != y` elementwise, written to `cond` if not None."""
    return _append_comparison("not_equal", x, y, cond)


def logical_and(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Logical AND of x and y elementwise, written to `out` if not None."""
    return _append_logical("logical_and", {"X": x, "Y": y}, out, name)


def logical_or(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Logical OR of x and y elementwise, written to `out` if not None."""
    return _append_logical("logical_or", {"X": x, "Y": y}, out, name)


def logical_xor(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Logical XOR of x and y elementwise, written to `out` if not None."""
    return _append_logical("logical_xor", {"X": x, "Y": y}, out, name)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Logical NOT of x elementwise, written to `out` if not None."""
    return _append_logical("logical_not", {"X": x}, out, name)
