"""Elementwise functions without attributes."""

from __future__ import annotations

from collections.abc import Callable

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.recording.checks import FLOATS, check_variable_and_dtype

_LAYERS = {
    "sigmoid": "`1 / (1 + exp(-x))`.",
    "logsigmoid": "`log(1 / (1 + exp(-x)))`.",
    "exp": "`e ** x`.",
    "tanh": "The hyperbolic tangent of `x`.",
    "atan": "The arc tangent of `x`, between -π/2 and π/2.",
    "tanh_shrink": "`x - tanh(x)`.",
    "sqrt": "The square root of `x`.",
    "rsqrt": "`1 / sqrt(x)`.",
    "abs": "`|x|`; its gradient at 0 is 0.",
    "ceil": "The smallest integer not below `x`; its gradient is 0 everywhere.",
    "floor": "The largest integer not above `x`; its gradient is 0 everywhere.",
    "cos": "The cosine of `x` in radians.",
    "acos": "The arc cosine of `x`, between 0 and π.",
    "asin": "The arc sine of `x`, between -π/2 and π/2.",
    "sin": "The sine of `x` in radians.",
    "round": "The nearest integer, halves to the even one; its gradient is 0 everywhere.",
    "reciprocal": "`1 / x`.",
    "square": "`x * x`.",
    "softplus": "`log(1 + exp(x))`.",
    "softsign": "`x / (1 + |x|)`.",
}
_OF_WHOLE_NUMBERS = {"abs", "exp", "square"}
_WIDE = ("float32", "float64")

__all__ = [*_LAYERS, "erf", "log", "log1p", "relu"]


def _layer(op_type: str, text: str) -> Callable[..., Variable]:
    allowed = (*(("int32", "int64") if op_type in _OF_WHOLE_NUMBERS else ()), *FLOATS)

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", allowed, op_type)
        return append_simple_op(op_type, {"X": x}, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = text
    return layer


globals().update({name: _layer(name, text) for name, text in _LAYERS.items()})


def relu(x: Variable, name: str | None = None) -> Variable:
    """Return `max(x, 0)`."""
    check_variable_and_dtype(x, "x", FLOATS, "relu")
    return append_simple_op("relu", {"X": x}, name=name)


def log(x: Variable, name: str | None = None) -> Variable:
    """Return the natural logarithm."""
    check_variable_and_dtype(x, "x", _WIDE, "log")
    return append_simple_op("log", {"X": x}, name=name)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return the natural logarithm of `1 + x`, written to `out` if not None."""
    check_variable_and_dtype(x, "x", _WIDE, "log1p")
    helper = LayerHelper("log1p", name=name)
    if out is None:
        return helper.append_result("log1p", {"X": x})
    helper.append_op("log1p", inputs={"X": x}, outputs={"Out": out})
    return out


def erf(x: Variable) -> Variable:
    """Error function: 2/√π times the integral of exp(-t²) from 0 to x."""
    return append_simple_op("erf", {"X": x})
