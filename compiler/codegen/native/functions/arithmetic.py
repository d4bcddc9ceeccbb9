"""Arithmetic, comparisons and rounding as NumPy defines them, for floats, integers and booleans.

Integers are signed here; `integers` has what differs for unsigned ones.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.native.functions.floats import INFINITY, absolute, known_number, number
from compiler.codegen.native.llvm_ir import I1, Function, Value, constant, zero

_FLOAT_ORDER = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def comparison(order: str, signed: bool = True) -> Callable[[Function, Value, Value], Value]:
    """The function that compares two values: `lt`, `le`, `gt`, `ge`, `eq` or `ne`."""

    def compare(f: Function, a: Value, b: Value) -> Value:
        return f.compare(predicate(order, a, signed), a, b)

    return compare


def predicate(order: str, x: Value, signed: bool = True) -> str:
    """LLVM's predicate of an order for values of a type; of floats, NaN is unequal to all."""
    if x.type.is_float:
        return _FLOAT_ORDER[order]
    if order in ("eq", "ne"):
        return order
    return ("s" if signed and x.type.element != "i1" else "u") + order


def is_true(f: Function, x: Value) -> Value:
    """True where a number is not zero."""
    return x if x.type.element == "i1" else f.compare(predicate("ne", x), x, zero(x.type))


def logical(operation: str) -> Callable[[Function, Value, Value], Value]:
    """The function that combines truth values by `and`, `or` or `xor`."""

    def combine(f: Function, a: Value, b: Value) -> Value:
        return f.binary(operation, is_true(f, a), is_true(f, b))

    return combine


def logical_not(f: Function, x: Value) -> Value:
    """True where a number is zero."""
    return f.binary("xor", is_true(f, x), constant(x.type.of(I1), 1))


def where(f: Function, condition: Value, a: Value, b: Value) -> Value:
    """`a` where a number is not zero, else `b`."""
    return f.select(is_true(f, condition), a, b)


def isnan(f: Function, x: Value) -> Value:
    """True for NaN."""
    return f.compare("uno", x, x) if x.type.is_float else constant(x.type.of(I1), 0)


def isinf(f: Function, x: Value) -> Value:
    """True for the two infinities."""
    if not x.type.is_float:
        return constant(x.type.of(I1), 0)
    return f.compare("oeq", absolute(f, x), number(x, INFINITY))


def isfinite(f: Function, x: Value) -> Value:
    """True for numbers that are neither infinite nor NaN."""
    if not x.type.is_float:
        return constant(x.type.of(I1), 1)
    return f.compare("olt", absolute(f, x), number(x, INFINITY))


def add(f: Function, a: Value, b: Value) -> Value:
    """Compute a + b; of booleans, whether one is true."""
    return f.binary("or", a, b) if a.type.element == "i1" else f.add(a, b)


def subtract(f: Function, a: Value, b: Value) -> Value:
    """Compute a - b."""
    return f.sub(a, b)


def multiply(f: Function, a: Value, b: Value) -> Value:
    """Compute a * b; of booleans, whether both are true."""
    return f.binary("and", a, b) if a.type.element == "i1" else f.mul(a, b)


def divide(f: Function, a: Value, b: Value) -> Value:
    """Compute a / b of floats."""
    return f.div(a, b)


def negative(f: Function, x: Value) -> Value:
    """Compute -x."""
    return f.neg(x)


def square(f: Function, x: Value) -> Value:
    """Compute x * x."""
    return f.mul(x, x)


def extreme(order: str, signed: bool = True) -> Callable[[Function, Value, Value], Value]:
    """The function for the maximum (`gt`) or minimum (`lt`) of two; NaN if either is.

    `a > b ? a : b` is one instruction on x86, and NaN if b is: a constant is put first.
    """

    def choose(f: Function, a: Value, b: Value) -> Value:
        if a.type.element == "i1":
            return f.binary("or" if order == "gt" else "and", a, b)
        if _is_number(b):
            a, b = b, a
        chosen = f.select(f.compare(predicate(order, a, signed), a, b), a, b)
        if not a.type.is_float or _is_number(a):
            return chosen
        return f.select(isnan(f, a), a, chosen)

    return choose


def _is_number(x: Value) -> bool:
    literal = known_number(x)
    return literal is not None and literal == literal


def magnitude(f: Function, x: Value) -> Value:
    """|x|; the smallest integer has none and is returned."""
    if x.type.is_float:
        return absolute(f, x)
    if x.type.element == "i1":
        return x
    return f.select(f.compare("slt", x, zero(x.type)), f.neg(x), x)


def sign(f: Function, x: Value) -> Value:
    """-1, 0 or 1; NaN for NaN."""
    one, less, none = number(x, 1.0), number(x, -1.0), zero(x.type)
    down = f.select(f.compare(predicate("lt", x), x, none), less, _zero_or_nan(f, x))
    return f.select(f.compare(predicate("gt", x), x, none), one, down)


def _zero_or_nan(f: Function, x: Value) -> Value:
    return f.select(isnan(f, x), x, zero(x.type)) if x.type.is_float else zero(x.type)


def sqrt(f: Function, x: Value) -> Value:
    """The square root, correctly rounded."""
    return f.intrinsic("sqrt", x)


def reciprocal(f: Function, x: Value) -> Value:
    """1 / x; of integers, rounded towards zero, and 0 for 0."""
    if x.type.is_float:
        return f.div(number(x, 1.0), x)
    size = f.binary("or", f.compare("eq", x, number(x, 1)), f.compare("eq", x, number(x, -1)))
    return f.select(size, x, zero(x.type))


def rounding(intrinsic: str) -> Callable[[Function, Value], Value]:
    """The function that rounds floats to integers by an intrinsic; integers are returned."""

    def rounded(f: Function, x: Value) -> Value:
        return f.intrinsic(intrinsic, x) if x.type.is_float else x

    return rounded
