"""exp, expm1, and what follows from them: tanh, sinh, cosh, sigmoid.

exp(x) = 2**n * exp(r), where n = x / ln 2 rounded, and r = x - n * ln 2 is at most (ln 2) / 2 in
size (W. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980). exp(r) - 1 is a
polynomial fitted by Remez' algorithm for the least relative error.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native.functions.floats import (
    absolute,
    at_least,
    at_most,
    bits_of,
    float_of,
    format_of,
    is_below,
    number,
    plus,
    polynomial,
    times,
    with_sign,
)
from compiler.codegen.native.llvm_ir import Function, Value, constant
from compiler.support.dataclass import dataclass

LOG2_E = 1.4426950408889634

LN_2: Mapping[str, tuple[float, float]] = {
    "float": (0.6931471824645996, -1.9046542121259336e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}
"""ln 2 as the sum of two numbers of a type."""

_EXPM1_TAIL: Mapping[str, tuple[float, ...]] = {
    "float": (0.00019845858, 0.0013940628, 0.00833339, 0.041666362, 0.16666666, 0.5),
    "double": (
        2.0875365156467385e-09,
        2.5108980362263802e-08,
        2.755740250412364e-07,
        2.7557244369730467e-06,
        2.4801587174743792e-05,
        0.00019841269885970575,
        0.0013888888888962234,
        0.00833333333332169,
        0.04166666666666651,
        0.16666666666666677,
        0.5,
    ),
}
"""(exp(r) - 1 - r) / r**2; the relative error of exp(r) - 1 is 2**-32 and 2**-62."""

_RANGE: Mapping[str, tuple[float, float]] = {"float": (-104.0, 88.8), "double": (-746.0, 709.8)}
"""exp is zero below and infinite above."""

_SINH_LIMIT: Mapping[str, float] = {"float": 89.5, "double": 710.5}
"""sinh and cosh are infinite from here."""

_ONE_LEFT = 40.0
"""1 - exp(-x) is 1 beyond."""


@dataclass(frozen=True)
class Reduced:
    """A reduced argument: exp(x) = 2**n * (1 + u), where n is in the lowest bits of `rounded`."""

    rounded: Value
    u: Value


def reduce_exp(f: Function, x: Value, low: Value | None = None) -> Reduced:
    """Reduce the argument x, or x + low with a small correction `low`."""
    magic = number(x, format_of(x).magic)
    rounded = f.fma(x, number(x, LOG2_E), magic)
    n = f.sub(rounded, magic)
    near, far = LN_2[x.type.element]
    r = f.fma(n, number(x, -far), f.fma(n, number(x, -near), x))
    r = f.add(r, low) if low else r
    tail = polynomial(f, r, _EXPM1_TAIL[x.type.element])
    return Reduced(rounded, f.fma(f.mul(r, r), tail, r))


def power_of_2(f: Function, rounded: Value, bias: Value) -> Value:
    """2**(n + b) for n in the lowest bits of `rounded`; `bias` is `biased` of b."""
    format_ = format_of(rounded)
    bits = bits_of(f, rounded)
    shifted = f.binary("shl", bits, constant(bits.type, format_.mantissa))
    return float_of(f, f.add(shifted, bias))


def biased(x: Value, exponent: int) -> Value:
    """The bits of 2**exponent in the type of `x`."""
    format_ = format_of(x)
    return constant(x.type.of(format_.integer), (exponent + format_.bias) << format_.mantissa)


def exp(f: Function, x: Value) -> Value:
    """Compute e ** x within 1 ulp."""
    low, high = _RANGE[x.type.element]
    return scaled_exp(f, at_most(f, at_least(f, x, low), high))


def bounded_exp(f: Function, x: Value) -> Value:
    """The same for x from -40 to 80, of which neither it nor its parts leave the range."""
    part = reduce_exp(f, x)
    power = power_of_2(f, part.rounded, biased(x, 0))
    return f.fma(power, part.u, power)


def scaled_exp(f: Function, x: Value, low: Value | None = None) -> Value:
    """Compute e ** (x + low) for x in the range of results.

    The power of 2 is scaled to the middle of its range, and the result scaled back, so that it
    becomes infinity or a denormal number where it has to.
    """
    small = is_below(f, x, -_ONE_LEFT)
    bias = f.select(small, biased(x, 64), biased(x, -1))
    part = reduce_exp(f, x, low)
    power = power_of_2(f, part.rounded, bias)
    scale = f.select(small, number(x, 2.0**-64), number(x, 2.0))
    return f.mul(f.fma(power, part.u, power), scale)


def expm1(f: Function, x: Value) -> Value:
    """Compute e ** x - 1 within 2 ulp near 0 too."""
    clamped = at_most(f, at_least(f, x, -_ONE_LEFT), _RANGE[x.type.element][1])
    result = times(f, fraction_of_expm1(f, clamped, 1), 2.0)
    return f.select(is_below(f, absolute(f, x), 2.0**-60), x, result)


def fraction_of_expm1(f: Function, x: Value, halvings: int) -> Value:
    """(e ** x - 1) / 2**halvings for x from -40."""
    part = reduce_exp(f, x)
    power = power_of_2(f, part.rounded, biased(x, -halvings))
    return f.fma(power, part.u, plus(f, power, -(2.0**-halvings)))


def tanh(f: Function, x: Value) -> Value:
    """The hyperbolic tangent, within 3 ulp: t / (t + 2) for t = exp(-2 |x|) - 1, signed."""
    clamped = at_least(f, times(f, absolute(f, x), -2.0), -_ONE_LEFT)
    t = fraction_of_expm1(f, clamped, 0)
    return with_sign(f, f.div(t, plus(f, t, 2.0)), x)


def sigmoid(f: Function, x: Value) -> Value:
    """1 / (1 + e ** -x), within 3 ulp."""
    z = exp(f, f.neg(absolute(f, x)))
    one = number(x, 1.0)
    return f.div(f.select(is_below(f, x, 0.0), z, one), f.add(z, one))


def sinh(f: Function, x: Value) -> Value:
    """The hyperbolic sine, within 3 ulp."""
    size = absolute(f, x)
    h = fraction_of_expm1(f, at_most(f, size, _SINH_LIMIT[x.type.element]), 2)
    whole = f.add(h, f.div(h, f.fma(h, number(x, 4.0), number(x, 1.0))))
    result = with_sign(f, times(f, whole, 2.0), x)
    return f.select(is_below(f, size, 2.0**-30), x, result)


def cosh(f: Function, x: Value) -> Value:
    """The hyperbolic cosine, within 2 ulp."""
    clamped = at_most(f, absolute(f, x), _SINH_LIMIT[x.type.element])
    part = reduce_exp(f, clamped)
    power = power_of_2(f, part.rounded, biased(x, -2))
    quarter = f.fma(power, part.u, power)
    return times(f, f.add(quarter, f.div(number(x, 0.0625), quarter)), 2.0)
