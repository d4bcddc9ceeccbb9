"""Logarithms: log, log1p, log2, log10.

A positive number is 2**k * (1 + v), where 1 + v is between sqrt(1/2) and sqrt(2); log(1 + v) is a
polynomial in single precision, and in double precision one in v / (2 + v) (as in W. Cody and
W. Waite, "Software Manual for the Elementary Functions", 1980).
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native.functions.exponentials import LN_2
from compiler.codegen.native.functions.floats import (
    INFINITY,
    NAN,
    absolute,
    bits_of,
    float_of,
    format_of,
    is_below,
    number,
    plus,
    polynomial,
    times,
)
from compiler.codegen.native.llvm_ir import Function, Value, constant
from compiler.support.dataclass import dataclass

_LOG_2_E: Mapping[str, tuple[float, float]] = {
    "float": (1.4426950216293335, 1.925963033500011e-08),
    "double": (1.4426950408889634, 2.0355273740931033e-17),
}
_LOG_10_E: Mapping[str, tuple[float, float]] = {
    "float": (0.4342944920063019, -1.0103049952192578e-08),
    "double": (0.4342944819032518, 1.098319650216765e-17),
}
_LOG_10_2: Mapping[str, tuple[float, float]] = {
    "float": (0.3010300099849701, -1.432098883924482e-08),
    "double": (0.3010299956639812, -2.8037281277851704e-18),
}

_LOG1P_TAIL = (
    *(-0.07634477, 0.12761581, -0.13160188, 0.14201756, -0.16623357, 0.20001227, -0.25000823),
    0.3333333,
)
"""(log(1 + v) - v + v**2 / 2) / v**3; the relative error of log(1 + v) is 2**-27."""

LOG_RATIO_TAIL = (
    *(0.14796107279774906, 0.15314035654664684, 0.18183564873559646, 0.22222198563362894),
    *(0.2857142874247574, 0.3999999999941432, 0.6666666666666734),
)
"""(log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2; the relative error of the log is 2**-59."""

_SQRT_HALF: Mapping[str, int] = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
"""The bits of the square root of 1/2."""


@dataclass(frozen=True)
class Decomposed:
    """A number 2**k * m, where m is between sqrt(1/2) and sqrt(2), and k is integral."""

    k: Value
    m: Value
    exponent_bits: Value
    """k + bias, as an integer."""


def decompose(f: Function, x: Value, denormals: bool = True) -> Decomposed:
    """Decompose a positive finite number; a denormal one is scaled first."""
    format_ = format_of(x)
    offset = 2.0**format_.mantissa + format_.bias
    magic = number(x, offset)
    if denormals:
        shift = format_.mantissa + 1
        small = is_below(f, x, format_.smallest_normal)
        x = f.select(small, times(f, x, 2.0**shift), x)
        magic = f.select(small, number(x, offset + shift), magic)
    bits = bits_of(f, x)
    integer, ones = bits.type, format_.bias << format_.mantissa
    moved = f.add(bits, constant(integer, ones - _SQRT_HALF[x.type.element]))
    biased_k = f.binary("lshr", moved, constant(integer, format_.mantissa))
    k = f.sub(float_of(f, f.binary("or", biased_k, constant(integer, _magic_bits(x)))), magic)
    significand = f.binary("and", moved, constant(integer, (1 << format_.mantissa) - 1))
    m = float_of(f, f.add(significand, constant(integer, _SQRT_HALF[x.type.element])))
    return Decomposed(k, m, biased_k)


def _magic_bits(x: Value) -> int:
    """The bits of 2**mantissa, the number whose unit in the last place is 1."""
    format_ = format_of(x)
    return (format_.bias + format_.mantissa) << format_.mantissa


def log1p_rest(f: Function, v: Value) -> Value:
    """log(1 + v) - v for 1 + v between sqrt(1/2) and sqrt(2)."""
    square = f.mul(v, v)
    half = times(f, square, 0.5)
    if v.type.element == "float":
        tail = f.mul(f.mul(v, square), polynomial(f, v, _LOG1P_TAIL))
        return f.sub(tail, half)
    s = f.div(v, plus(f, v, 2.0))
    z = f.mul(s, s)
    return f.fma(s, f.fma(z, polynomial(f, z, LOG_RATIO_TAIL), half), f.neg(half))


def log_of_parts(f: Function, k: Value, v: Value) -> Value:
    """log(2**k * (1 + v))."""
    near, far = LN_2[v.type.element]
    rest = f.fma(k, number(k, far), log1p_rest(f, v))
    return f.fma(k, number(k, near), f.add(v, rest))


def _with_limits(f: Function, x: Value, result: Value) -> Value:
    """The logarithm of x, given that of positive finite numbers."""
    zero = number(x, 0.0)
    none = f.select(f.compare("oeq", x, zero), number(x, -INFINITY), number(x, NAN))
    some = f.select(is_below(f, x, INFINITY), result, x)
    return f.select(f.compare("ogt", x, zero), some, none)


def log(f: Function, x: Value) -> Value:
    """The natural logarithm, within 2 ulp."""
    parts = decompose(f, x)
    return _with_limits(f, x, log_of_parts(f, parts.k, plus(f, parts.m, -1.0)))


def log2(f: Function, x: Value) -> Value:
    """The logarithm to base 2, within 2 ulp; exact for powers of 2."""
    parts = decompose(f, x)
    v = plus(f, parts.m, -1.0)
    near, far = _LOG_2_E[x.type.element]
    rest = f.fma(log1p_rest(f, v), number(x, near), times(f, v, far))
    return _with_limits(f, x, f.add(parts.k, f.fma(v, number(x, near), rest)))


def log10(f: Function, x: Value) -> Value:
    """The logarithm to base 10, within 2 ulp."""
    parts = decompose(f, x)
    v = plus(f, parts.m, -1.0)
    (near, far), (two, two_far) = _LOG_10_E[x.type.element], _LOG_10_2[x.type.element]
    rest = f.fma(v, number(x, far), times(f, parts.k, two_far))
    rest = f.fma(log1p_rest(f, v), number(x, near), rest)
    result = f.fma(parts.k, number(x, two), f.fma(v, number(x, near), rest))
    return _with_limits(f, x, result)


def log1p(f: Function, x: Value) -> Value:
    """log(1 + x), within 2 ulp near 0 too.

    The rounding error of u = 1 + x (D. Knuth's sum of two, "The Art of Computer Programming",
    volume 2) is added to the significand of u.
    """
    u = plus(f, x, 1.0)
    recovered = plus(f, u, -1.0)
    error = f.add(f.sub(x, recovered), f.sub(number(x, 1.0), f.sub(u, recovered)))
    parts = decompose(f, u, denormals=False)
    v = f.fma(error, _reciprocal_power(f, parts), plus(f, parts.m, -1.0))
    result = _with_limits(f, u, log_of_parts(f, parts.k, v))
    return f.select(is_below(f, absolute(f, x), 2.0**-60), x, result)


def _reciprocal_power(f: Function, parts: Decomposed) -> Value:
    """2**-k, or 0 where that is denormal."""
    format_ = format_of(parts.m)
    integer = parts.exponent_bits.type
    exponent = f.sub(constant(integer, 2 * format_.bias), parts.exponent_bits)
    some = f.compare("sgt", exponent, constant(integer, 0))
    bits = f.binary("shl", exponent, constant(integer, format_.mantissa))
    return float_of(f, f.select(some, bits, constant(integer, 0)))
