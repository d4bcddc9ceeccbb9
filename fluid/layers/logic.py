"""Counters, comparisons and logic: what conditions are made of."""

from __future__ import annotations

from typing import Any

from fluid.checks import check_variable
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper

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


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """`x + value` for a tensor of one element, in place or as a new one."""
    check_variable(x, "x", "increment")
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    attrs = {"step": float(value)}
    helper.append_op("increment", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- comparisons and logic ----------------------------------------------------------------------


def _boolean(
    op_type: str,
    inputs: dict[str, Variable],
    out: Variable | None,
    name: str | None = None,
    **attrs: Any,
) -> Variable:
    """Append an op whose result is of booleans, into `out` if given."""
    for slot, var in inputs.items():
        check_variable(var, slot.lower(), op_type)
    helper = LayerHelper(op_type, name=name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """`x < y`, element by element, into `cond` if given."""
    return _boolean("less_than", {"X": x, "Y": y}, cond, force_cpu=force_cpu)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x <= y`, element by element, into `cond` if given."""
    return _boolean("less_equal", {"X": x, "Y": y}, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x > y`, element by element, into `cond` if given."""
    return _boolean("greater_than", {"X": x, "Y": y}, cond)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x >= y`, element by element, into `cond` if given."""
    return _boolean("greater_equal", {"X": x, "Y": y}, cond)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x == y`, element by element, into `cond` if given."""
    return _boolean("equal", {"X": x, "Y": y}, cond)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x != y`, element by element, into `cond` if given."""
    return _boolean("not_equal", {"X": x, "Y": y}, cond)


def logical_and(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """`x and y`, element by element, into `out` if given."""
    return _boolean("logical_and", {"X": x, "Y": y}, out, name)


def logical_or(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """`x or y`, element by element, into `out` if given."""
    return _boolean("logical_or", {"X": x, "Y": y}, out, name)


def logical_xor(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Exactly one of x and y, element by element, into `out` if given."""
    return _boolean("logical_xor", {"X": x, "Y": y}, out, name)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Not x, element by element, into `out` if given."""
    return _boolean("logical_not", {"X": x}, out, name)
