"""sin, cos and tan.

|x| = n * pi/2 + r, where r is at most pi/4 in size; sin r and cos r are polynomials fitted by
Remez' algorithm for the least relative error. The quadrant n mod 4 selects among them.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native.functions.floats import (
    absolute,
    bits_of,
    float_of,
    format_of,
    number,
    polynomial,
)
from compiler.codegen.native.functions.quarter_periods import Angle, reduce_angle
from compiler.codegen.native.llvm_ir import Function, Value, constant, zero

_SINE: Mapping[str, tuple[float, ...]] = {
    "float": (2.7180831e-06, -0.00019839309, 0.008333329, -0.16666667),
    "double": (
        *(1.5896066701344328e-10, -2.5050745023009887e-08, 2.755731360442391e-06),
        *(-0.00019841269829542273, 0.008333333333322061, -0.1666666666666663),
    ),
}
"""(sin(r) / r - 1) / r**2 in r**2; the relative error of sin(r) is 2**-37 and 2**-58."""

_COSINE: Mapping[str, tuple[float, ...]] = {
    "float": (2.4432786e-05, -0.0013887313, 0.041666646),
    "double": (
        *(-1.1358423270163104e-11, 2.0875698703482154e-09, -2.75573141639367e-07),
        *(2.4801587288799876e-05, -0.0013888888888872975, 0.041666666666666595),
    ),
}
"""(cos(r) - 1 + r**2 / 2) / r**4 in r**2; the relative error of cos(r) is 2**-33 and 2**-64."""


def sin(f: Function, x: Value) -> Value:
    """The sine, within 2 ulp."""
    angle = reduce_angle(f, absolute(f, x))
    sine, cosine = _sine_and_cosine(f, angle.r)
    size = f.select(_is_odd(f, angle), cosine, sine)
    return _xor(f, size, f.binary("xor", _half_turn(f, angle.quadrant), _sign_bit(f, x)))


def cos(f: Function, x: Value) -> Value:
    """The cosine, within 2 ulp."""
    angle = reduce_angle(f, absolute(f, x))
    sine, cosine = _sine_and_cosine(f, angle.r)
    size = f.select(_is_odd(f, angle), sine, cosine)
    following = f.add(angle.quadrant, constant(angle.quadrant.type, 1))
    return _xor(f, size, _half_turn(f, following))


def tan(f: Function, x: Value) -> Value:
    """The tangent, within 4 ulp."""
    angle = reduce_angle(f, absolute(f, x))
    sine, cosine = _sine_and_cosine(f, angle.r)
    is_odd = _is_odd(f, angle)
    above = f.select(is_odd, f.neg(cosine), sine)
    return _xor(f, f.div(above, f.select(is_odd, sine, cosine)), _sign_bit(f, x))


def _sine_and_cosine(f: Function, r: Value) -> tuple[Value, Value]:
    z = f.mul(r, r)
    sine = f.fma(f.mul(r, z), polynomial(f, z, _SINE[r.type.element]), r)
    near = f.fma(z, number(z, -0.5), number(z, 1.0))
    return sine, f.fma(f.mul(z, z), polynomial(f, z, _COSINE[r.type.element]), near)


def _is_odd(f: Function, angle: Angle) -> Value:
    """True in the quadrants 1 and 3."""
    type = angle.quadrant.type
    return f.compare("ne", f.binary("and", angle.quadrant, constant(type, 1)), zero(type))


def _half_turn(f: Function, quadrant: Value) -> Value:
    """The sign bit where the quadrant is 2 or 3."""
    type = quadrant.type
    second = f.binary("and", quadrant, constant(type, 2))
    return f.binary("shl", second, constant(type, type.bits - 2))


def _sign_bit(f: Function, x: Value) -> Value:
    bits = bits_of(f, x)
    return f.binary("and", bits, constant(bits.type, format_of(x).sign))


def _xor(f: Function, x: Value, bits: Value) -> Value:
    """A float with bits inverted."""
    return float_of(f, f.binary("xor", bits_of(f, x), bits))
