"""Remainders and floored quotients of floats, exact as in NumPy.

A remainder is x - q * y for a whole q, computed with one rounding, which the exact result does not
need. Quotients too large for that are taken in steps, behind a branch.
"""

from __future__ import annotations

from compiler.codegen.native.functions.floats import (
    INFINITY,
    NAN,
    absolute,
    any_lane,
    format_of,
    number,
    plus,
    times,
    with_sign,
)
from compiler.codegen.native.llvm_ir import Function, Value, zero


def fmod(f: Function, x: Value, y: Value) -> Value:
    """The remainder of x / y with the sign of x; NaN for infinite x and for y = 0."""
    a, b = absolute(f, x), absolute(f, y)
    limit = number(x, 2.0 ** (format_of(x).mantissa - 1))
    is_far = f.compare("uge", f.div(a, b), limit)
    (rest,) = f.choose(
        any_lane(f, is_far),
        lambda: [_far_remainder(f, a, b)],
        lambda: [_remainder(f, a, b)],
    )
    return with_sign(f, rest, x)


def _remainder(f: Function, a: Value, b: Value) -> Value:
    """The remainder of positive numbers whose quotient is not large."""
    q = f.intrinsic("trunc", f.div(a, b))
    rest = f.fma(f.neg(q), b, a)
    rest = f.select(f.compare("olt", rest, zero(rest.type)), f.add(rest, b), rest)
    return f.select(f.compare("oeq", b, number(b, INFINITY)), a, rest)


def _far_remainder(f: Function, a: Value, b: Value) -> Value:
    """The remainder of any positive numbers: those of b * 2**n for falling n, one by one.

    2**n is the product of two numbers, since it can exceed the largest. A multiple of b that
    overflows is larger than the rest, and changes nothing.
    """
    bits = format_of(a).mantissa - 2
    largest = format_of(a).bias // bits
    count = -(-(2 * format_of(a).bias + format_of(a).mantissa) // bits)
    start = [2.0 ** (bits * exponent) for exponent in (largest, min(largest, count - largest))]

    def shorten(_: Value, carried: list[Value]) -> list[Value]:
        rest, first, second = carried
        rest = _remainder(f, rest, f.mul(f.mul(b, second), first))
        both = f.compare("ogt", second, number(second, 1.0))
        shrunk = f.select(both, second, first)
        smaller = times(f, shrunk, 2.0**-bits)
        return [rest, f.select(both, first, smaller), f.select(both, smaller, second)]

    scales = [number(a, factor) for factor in start]
    rest, *_ = f.loop(0, largest + min(largest, count - largest) + 1, 1, shorten, [a, *scales])
    is_finite = f.compare("olt", a, number(a, INFINITY))
    is_defined = f.binary("and", is_finite, f.compare("ogt", b, zero(b.type)))
    return f.select(is_defined, rest, number(a, NAN))


def remainder(f: Function, x: Value, y: Value) -> Value:
    """The remainder of x / y with the sign of y."""
    rest = fmod(f, x, y)
    moved = f.select(_signs_differ(f, rest, y), f.add(rest, y), rest)
    is_zero = f.compare("oeq", rest, zero(rest.type))
    signed = f.select(is_zero, with_sign(f, zero(y.type), y), moved)
    return f.select(f.compare("oeq", y, zero(y.type)), rest, signed)


def floor_divide(f: Function, x: Value, y: Value) -> Value:
    """The quotient x / y rounded down; x / y for y = 0."""
    none, ratio = zero(y.type), f.div(x, y)
    rest = fmod(f, x, y)
    quotient = f.div(f.sub(x, rest), y)
    is_rounded_up = f.binary("and", f.compare("une", rest, none), _signs_differ(f, rest, y))
    quotient = f.select(is_rounded_up, plus(f, quotient, -1.0), quotient)
    down = f.intrinsic("floor", quotient)
    is_above = f.compare("ogt", f.sub(quotient, down), number(y, 0.5))
    whole = f.select(is_above, plus(f, down, 1.0), down)
    is_zero = f.compare("oeq", quotient, none)
    whole = f.select(is_zero, with_sign(f, none, ratio), whole)
    return f.select(f.compare("oeq", y, none), ratio, whole)


def _signs_differ(f: Function, a: Value, b: Value) -> Value:
    """True where exactly one of two numbers is negative."""
    none = zero(a.type)
    return f.binary("xor", f.compare("olt", a, none), f.compare("olt", b, none))
