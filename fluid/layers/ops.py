"""Functions of one tensor without options: a layer for each, most made from the op itself."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.opdef import find
from fluid.checks import FLOATS, check_variable_and_dtype
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op

_NAMES = """
sigmoid logsigmoid exp tanh atan tanh_shrink sqrt rsqrt abs ceil floor cos acos asin sin
round reciprocal square softplus softsign
""".split()
_OF_WHOLE_NUMBERS = {"abs", "exp", "square"}
_WIDE = ("float32", "float64")

__all__ = [*_NAMES, "erf", "log", "log1p", "relu"]


def _layer(op_type: str) -> Callable[..., Variable]:
    allowed = (*(("int32", "int64") if op_type in _OF_WHOLE_NUMBERS else ()), *FLOATS)

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", allowed, op_type)
        return append_simple_op(op_type, {"X": x}, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = find(op_type).__doc__
    return layer


globals().update({name: _layer(name) for name in _NAMES})


def relu(x: Variable, name: str | None = None) -> Variable:
    """`max(x, 0)`."""
    check_variable_and_dtype(x, "x", FLOATS, "relu")
    return append_simple_op("relu", {"X": x}, name=name)


def log(x: Variable, name: str | None = None) -> Variable:
    """The natural logarithm."""
    check_variable_and_dtype(x, "x", _WIDE, "log")
    return append_simple_op("log", {"X": x}, name=name)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The natural logarithm of `1 + x`, written to `out` if given."""
    check_variable_and_dtype(x, "x", _WIDE, "log1p")
    helper = LayerHelper("log1p", name=name)
    if out is None:
        return helper.append_result("log1p", {"X": x})
    helper.append_op("log1p", inputs={"X": x}, outputs={"Out": out})
    return out


def erf(x: Variable) -> Variable:
    """The error function: 2/√π times the integral of exp(-t²) from 0 to x."""
    return append_simple_op("erf", {"X": x})
