"""Maps NumPy functions, element types and numbers to Triton source.

Triton lacks many of NumPy's functions, and its interpreter more: `helpers` composes them of
others, and modules include the helpers they use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from compiler.codegen.trace import Scalar
from compiler.errors import CompileError
from compiler.ir.types import DType

TYPES: Mapping[DType, str] = {
    DType.BOOL: "tl.int1",
    DType.INT8: "tl.int8",
    DType.UINT8: "tl.uint8",
    DType.INT16: "tl.int16",
    DType.INT32: "tl.int32",
    DType.INT64: "tl.int64",
    DType.FP16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.FP32: "tl.float32",
    DType.FP64: "tl.float64",
}
"""Element types in kernels."""

POINTERS: Mapping[DType, str] = {
    DType.BOOL: "*i1",
    DType.INT8: "*i8",
    DType.UINT8: "*u8",
    DType.INT16: "*i16",
    DType.INT32: "*i32",
    DType.INT64: "*i64",
    DType.FP16: "*fp16",
    DType.BF16: "*bf16",
    DType.FP32: "*fp32",
    DType.FP64: "*fp64",
}
"""Pointer types of kernel parameters, in the notation of Triton's compiler."""

SIZE = "i32"
"""The type of a size parameter."""

OPERATORS: Mapping[str, str] = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "divide": "({0} / {1})",
    "less": "({0} < {1})",
    "less_equal": "({0} <= {1})",
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
    "equal": "({0} == {1})",
    "not_equal": "({0} != {1})",
    "logical_and": "({0} & {1})",
    "logical_or": "({0} | {1})",
    "logical_xor": "({0} ^ {1})",
    "logical_not": "({0} == 0)",
    "negative": "(-{0})",
    "square": "({0} * {0})",
    "reciprocal": "(1.0 / {0})",
    "isnan": "({0} != {0})",
    "isinf": '(tl.abs({0}) == float("inf"))',
    "isfinite": '(tl.abs({0}) < float("inf"))',
    "where": "tl.where({0}, {1}, {2})",
    "absolute": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "index_div": "({0} // {1})",
    "index_mod": "({0} % {1})",
}
"""Functions that are a Triton operator or function."""

HELPERS = {
    "maximum": "larger",
    "minimum": "smaller",
    "expm1": "expm1",
    "log1p": "log1p",
    "log2": "log2",
    "log10": "log10",
    "tanh": "tanh",
    "sinh": "sinh",
    "cosh": "cosh",
    "tan": "tan",
    "arctan": "arctan",
    "arcsin": "arcsin",
    "arccos": "arccos",
    "power": "power",
    "sign": "sign",
    "sqrt": "square_root",
    "trunc": "trunc",
    "rint": "rint",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
    "fmod": "fmod",
}
"""Functions implemented by a helper, by the helper's name."""

WHOLE = {name: f"{name}_whole" for name in ("floor_divide", "remainder", "power", "fmod")}
"""Functions with a separate helper for integers."""


def knows(fn: str) -> bool:
    """True if a NumPy function can be lowered to Triton."""
    return fn in OPERATORS or fn in HELPERS


def helper_of(fn: str, dtype: DType) -> str:
    """The helper that implements a function for operands of a type; empty if Triton has it."""
    if fn in OPERATORS:
        return ""
    if fn not in HELPERS:
        raise CompileError(f"numpy.{fn} has no lowering to Triton")
    return HELPERS[fn] if dtype.is_float else WHOLE.get(fn, HELPERS[fn])


def call_text(fn: str, helper: str, args: Sequence[str]) -> str:
    """The expression that applies a function to arguments."""
    return f"{helper}({', '.join(args)})" if helper else OPERATORS[fn].format(*args)


def repeats(fn: str) -> bool:
    """True if the expression of a function contains an argument more than once.

    >>> repeats("square"), repeats("add")
    (True, False)
    """
    return OPERATORS.get(fn, "").count("{0}") > 1


def bare(text: str) -> str:
    """Remove parentheses around a whole expression.

    >>> bare("(a + b)"), bare("(a + b) * (c + d)"), bare("f(a)")
    ('a + b', '(a + b) * (c + d)', 'f(a)')
    """
    if not text.startswith("("):
        return text
    depths = accumulate((c == "(") - (c == ")") for c in text)
    closed = next(i for i, depth in enumerate(depths) if depth == 0)
    return text[1:-1] if closed == len(text) - 1 else text


def number(value: Scalar) -> str:
    """Format a number as Triton source.

    >>> number(2), number(0.5), number(float("-inf")), number(True)
    ('2', '0.5', 'float("-inf")', '1')
    """
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if math.isfinite(value) else f'float("{value}")'
