"""`convert_call` and what it asks of functions, where release 1.8.5 has them."""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType

from fluid.dygraph.dygraph_to_static.operators import convert_call

__all__ = ["convert_call", "is_builtin", "is_paddle_func"]


def is_builtin(func: object) -> bool:
    """Whether a function is one of Python's own, as `len`."""
    return isinstance(func, BuiltinFunctionType) or func in vars(builtins).values()


def is_paddle_func(func: object) -> bool:
    """Whether a function is one of this package, which is called as it is."""
    module = getattr(func, "__module__", None) or ""
    return module.partition(".")[0] in ("fluid", "paddle")
