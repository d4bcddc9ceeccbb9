"""NumPy's elementwise functions as LLVM IR, without calls.

Each function appends instructions to a `Function` for operands of one type, and returns a value
of as many lanes. float16 and bfloat16 are computed with as float32: see `cast`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.codegen.native.functions import (
    arithmetic,
    division,
    exponentials,
    integers,
    inverse_trigonometry,
    logarithms,
    trigonometry,
)
from compiler.codegen.native.functions.casts import ELEMENTS, cast
from compiler.codegen.native.functions.error_function import erf
from compiler.codegen.native.functions.powers import power
from compiler.codegen.native.llvm_ir import Function, Value
from compiler.ir.types import DType

__all__ = ["ELEMENTS", "FUNCTIONS", "UNSIGNED", "Lowering", "cast", "lowering"]

Lowering = Callable[..., Value]
"""Appends a function of the operands that follow the `Function`."""


def _by_kind(floats: Lowering, whole: Lowering) -> Lowering:
    """The function for floats or integers, by the type of its first operand."""

    def either(f: Function, *operands: Value) -> Value:
        return (floats if operands[0].type.is_float else whole)(f, *operands)

    return either


FUNCTIONS: Mapping[str, Lowering] = {
    "less": arithmetic.comparison("lt"),
    "less_equal": arithmetic.comparison("le"),
    "greater": arithmetic.comparison("gt"),
    "greater_equal": arithmetic.comparison("ge"),
    "equal": arithmetic.comparison("eq"),
    "not_equal": arithmetic.comparison("ne"),
    "logical_and": arithmetic.logical("and"),
    "logical_or": arithmetic.logical("or"),
    "logical_xor": arithmetic.logical("xor"),
    "logical_not": arithmetic.logical_not,
    "where": arithmetic.where,
    "isfinite": arithmetic.isfinite,
    "isnan": arithmetic.isnan,
    "isinf": arithmetic.isinf,
    "add": arithmetic.add,
    "subtract": arithmetic.subtract,
    "multiply": arithmetic.multiply,
    "divide": arithmetic.divide,
    "floor_divide": _by_kind(division.floor_divide, integers.floor_divide),
    "remainder": _by_kind(division.remainder, integers.remainder),
    "fmod": _by_kind(division.fmod, integers.fmod),
    "maximum": arithmetic.extreme("gt"),
    "minimum": arithmetic.extreme("lt"),
    "negative": arithmetic.negative,
    "absolute": arithmetic.magnitude,
    "sign": arithmetic.sign,
    "square": arithmetic.square,
    "sqrt": arithmetic.sqrt,
    "reciprocal": arithmetic.reciprocal,
    "floor": arithmetic.rounding("floor"),
    "ceil": arithmetic.rounding("ceil"),
    "rint": arithmetic.rounding("rint"),
    "trunc": arithmetic.rounding("trunc"),
    "exp": exponentials.exp,
    "expm1": exponentials.expm1,
    "tanh": exponentials.tanh,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "sigmoid": exponentials.sigmoid,
    "log": logarithms.log,
    "log1p": logarithms.log1p,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "power": power,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "arcsin": inverse_trigonometry.arcsin,
    "arccos": inverse_trigonometry.arccos,
    "arctan": inverse_trigonometry.arctan,
    "arctan2": inverse_trigonometry.arctan2,
    "erf": erf,
}
"""By NumPy's name, for floats, signed integers and booleans."""

UNSIGNED: Mapping[str, Lowering] = {
    **FUNCTIONS,
    "less": arithmetic.comparison("lt", signed=False),
    "less_equal": arithmetic.comparison("le", signed=False),
    "greater": arithmetic.comparison("gt", signed=False),
    "greater_equal": arithmetic.comparison("ge", signed=False),
    "maximum": arithmetic.extreme("gt", signed=False),
    "minimum": arithmetic.extreme("lt", signed=False),
    "floor_divide": integers.unsigned_floor_divide,
    "remainder": integers.unsigned_remainder,
    "fmod": integers.unsigned_remainder,
    "absolute": integers.unsigned_magnitude,
    "sign": integers.unsigned_sign,
    "reciprocal": integers.unsigned_reciprocal,
}
"""The same for unsigned integers, whose values have the types of signed ones."""


def lowering(name: str, dtype: DType) -> Lowering | None:
    """The function that emits a NumPy function for operands of a type; None if there is none.

    Operands of float16 and bfloat16 are cast to float32 first.
    """
    return (UNSIGNED if dtype is DType.UINT8 else FUNCTIONS).get(name)
