"""Elementwise functions without attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.layer_functions import generate_layer_fn
from fluid.recording.checks import FLOATS, check_variable_and_dtype

_INTEGER_OPS = {"abs", "exp", "square"}
_FLOATS_WITHOUT_FP16 = ("float32", "float64")

__all__ = [
    "sigmoid",
    "logsigmoid",
    "exp",
    "tanh",
    "atan",
    "tanh_shrink",
    "sqrt",
    "rsqrt",
    "abs",
    "ceil",
    "floor",
    "cos",
    "acos",
    "asin",
    "sin",
    "round",
    "reciprocal",
    "square",
    "softplus",
    "softsign",
    "erf",
    "log",
    "log1p",
    "relu",
]


class _Elementwise(Protocol):
    """A layer that applies an op to each element."""

    def __call__(self, x: Variable, name: str | None = None) -> Variable:
        """Return the op's output."""
        ...


def _layer(op_type: str, text: str) -> _Elementwise:
    allowed = (*(("int32", "int64") if op_type in _INTEGER_OPS else ()), *FLOATS)

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", allowed, op_type)
        return append_simple_op(op_type, {"X": x}, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = text
    return layer


sigmoid = _layer("sigmoid", "Return `1 / (1 + exp(-x))`.")
logsigmoid = _layer("logsigmoid", "Return `log(1 / (1 + exp(-x)))`.")
exp = _layer("exp", "Return `e ** x`.")
tanh = _layer("tanh", "Return the hyperbolic tangent of `x`.")
atan = _layer("atan", "Return the arc tangent of `x`, between -π/2 and π/2.")
tanh_shrink = _layer("tanh_shrink", "Return `x - tanh(x)`.")
sqrt = _layer("sqrt", "Return the square root of `x`.")
rsqrt = _layer("rsqrt", "Return `1 / sqrt(x)`.")
abs = _layer("abs", "Return `|x|`; its gradient at 0 is 0.")
ceil = _layer("ceil", "Round up to an integer; the gradient is 0 everywhere.")
floor = _layer("floor", "Round down to an integer; the gradient is 0 everywhere.")
cos = _layer("cos", "Return the cosine of `x` in radians.")
acos = _layer("acos", "Return the arc cosine of `x`, between 0 and π.")
asin = _layer("asin", "Return the arc sine of `x`, between -π/2 and π/2.")
sin = _layer("sin", "Return the sine of `x` in radians.")
round = _layer(
    "round", "Round to the nearest integer, halves to even; the gradient is 0 everywhere."
)
reciprocal = _layer("reciprocal", "Return `1 / x`.")
square = _layer("square", "Return `x * x`.")
softplus = _layer("softplus", "Return `log(1 + exp(x))`.")
softsign = _layer("softsign", "Return `x / (1 + |x|)`.")


def relu(x: Variable, name: str | None = None) -> Variable:
    """Return `max(x, 0)`."""
    check_variable_and_dtype(x, "x", FLOATS, "relu")
    return append_simple_op("relu", {"X": x}, name=name)


def log(x: Variable, name: str | None = None) -> Variable:
    """Return the natural logarithm."""
    check_variable_and_dtype(x, "x", _FLOATS_WITHOUT_FP16, "log")
    return append_simple_op("log", {"X": x}, name=name)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return the natural logarithm of `1 + x`, written to `out` if not None."""
    check_variable_and_dtype(x, "x", _FLOATS_WITHOUT_FP16, "log1p")
    helper = LayerHelper("log1p", name=name)
    if out is None:
        return helper.append_result("log1p", {"X": x})
    helper.append_op("log1p", inputs={"X": x}, outputs={"Out": out})
    return out


def erf(x: Variable) -> Variable:
    """Error function: 2/√π times the integral of exp(-t²) from 0 to x."""
    return append_simple_op("erf", {"X": x})


def _generated(op_type: str) -> Callable[..., Variable]:
    """A layer made of its op when it is first called, with attributes and outputs as keywords."""
    return lambda *args, **kwargs: generate_layer_fn(op_type)(*args, **kwargs)


_scale = _generated("scale")
"""`scale` that can write a variable `out`, as scripts of release 1.8 call it."""
_elementwise_div = _generated("elementwise_div")
"""`elementwise_div` as scripts of release 1.8 call it."""
