"""Activations and other functions of one tensor: a layer for each, made from the op itself."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.opdef import find, registered
from fluid.framework import Variable
from fluid.layer_helper import append_simple_op

_NAMES = """
sigmoid logsigmoid exp tanh atan tanh_shrink sqrt rsqrt abs ceil floor cos acos asin sin
round reciprocal square softplus softsign
"""


def _layer(op_type: str) -> Callable[..., Variable]:
    def layer(x: Variable, name: str | None = None) -> Variable:
        return append_simple_op(op_type, {"X": x}, name=name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = find(op_type).__doc__
    return layer


_KNOWN = set(registered())
__all__ = [name for name in _NAMES.split() if name in _KNOWN]
globals().update({name: _layer(name) for name in __all__})
