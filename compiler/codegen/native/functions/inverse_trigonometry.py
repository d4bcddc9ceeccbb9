"""arcsin, arccos, arctan and arctan2, by polynomials fitted by Remez' algorithm."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native.functions.floats import (
    absolute,
    bits_of,
    is_below,
    number,
    plus,
    polynomial,
    times,
    with_sign,
)
from compiler.codegen.native.llvm_ir import Function, Value, zero

_HALF_PI: Mapping[str, tuple[float, float]] = {
    "float": (1.5707963705062866, -4.371138828673793e-08),
    "double": (1.5707963267948966, 6.123233995736766e-17),
}

_ARCTAN: Mapping[str, tuple[float, ...]] = {
    "float": (
        *(-0.00179378, 0.010915343, -0.031179275, 0.057959087, -0.08403541, 0.10952218),
        *(-0.14264248, 0.19998549, -0.333333),
    ),
    "double": (
        *(1.3223858005077568e-05, -0.0001521490428118016, 0.0008312690035661475),
        *(-0.002884774360068314, 0.007196235408698091, -0.013900201326377726),
        *(0.021984495931843307, -0.02990358944715889, 0.036641757107201314),
        *(-0.042191723124185045, 0.047223200887135074, -0.05253518068480312),
        *(0.058805277444710154, -0.06666404053787793, 0.07692279840060214),
        *(-0.09090907003192802, 0.11111111007047672, -0.1428571428257631),
        *(0.19999999999951493, -0.3333333333333307),
    ),
}
"""(arctan(t) / t - 1) / t**2 in t**2 up to t = 1; the relative error is 2**-28 and 2**-57."""

_ARCSIN: Mapping[str, tuple[float, ...]] = {
    "float": (0.037531644, 0.014428063, 0.03181044, 0.044516634, 0.07500506, 0.1666666),
    "double": (
        *(0.03265384061294904, -0.021038319672810658, 0.021734421792021084),
        *(0.0036956421152946825, 0.010783017102086881, 0.011398434626853585),
        *(0.013980876984811885, 0.017351607469543912, 0.02237221523136753),
        *(0.03038194269946474, 0.044642857174778415, 0.07499999999970632, 0.1666666666666676),
    ),
}
"""(arcsin(t) / t - 1) / t**2 in t**2 up to t = 1/2; the relative error is 2**-31 and 2**-59."""


def arctan(f: Function, x: Value) -> Value:
    """The inverse tangent, within 2 ulp."""
    size, one = absolute(f, x), number(x, 1.0)
    steep = f.compare("ogt", size, one)
    t = f.div(f.select(steep, one, size), f.select(steep, size, one))
    return with_sign(f, _from_slope(f, t, steep), x)


def arctan2(f: Function, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), within 3 ulp; as C defines it for zeros and infinities."""
    above, aside = absolute(f, y), absolute(f, x)
    steep = f.compare("ogt", above, aside)
    small, large = f.select(steep, aside, above), f.select(steep, above, aside)
    t = f.select(f.compare("oeq", small, large), number(x, 1.0), f.div(small, large))
    t = f.select(f.compare("oeq", large, number(x, 0.0)), small, t)
    angle = _from_slope(f, t, steep)
    bits = bits_of(f, x)
    is_left = f.compare("slt", bits, zero(bits.type))
    return with_sign(f, f.select(is_left, _minus_from(f, 2.0, angle), angle), y)


def _from_slope(f: Function, t: Value, steep: Value) -> Value:
    """arctan(t), or arctan(1 / t) where it is steep, for t from 0 to 1."""
    z = f.mul(t, t)
    angle = f.fma(f.mul(t, z), polynomial(f, z, _ARCTAN[t.type.element]), t)
    return f.select(steep, _minus_from(f, 1.0, angle), angle)


def _minus_from(f: Function, quarters: float, angle: Value) -> Value:
    """The multiple of pi/2 minus an angle."""
    near, far = _HALF_PI[angle.type.element]
    return plus(f, f.sub(number(angle, quarters * near), angle), quarters * far)


def arcsin(f: Function, x: Value) -> Value:
    """The inverse sine, within 3 ulp; NaN beyond 1."""
    large, angle = _near_arcsin(f, absolute(f, x))
    beyond = _minus_from(f, 1.0, times(f, angle, 2.0))
    return with_sign(f, f.select(large, beyond, angle), x)


def arccos(f: Function, x: Value) -> Value:
    """The inverse cosine, within 3 ulp; NaN beyond 1."""
    large, angle = _near_arcsin(f, absolute(f, x))
    twice = times(f, angle, 2.0)
    far = f.select(is_below(f, x, 0.0), _minus_from(f, 2.0, twice), twice)
    return f.select(large, far, _minus_from(f, 1.0, with_sign(f, angle, x)))


def _near_arcsin(f: Function, size: Value) -> tuple[Value, Value]:
    """Compute arcsin(x) up to 1/2; for larger numbers arcsin(sqrt((1 - x) / 2)).

    The first result is true for the latter.
    """
    large = f.compare("ogt", size, number(size, 0.5))
    half = f.fma(size, number(size, -0.5), number(size, 0.5))
    z = f.select(large, half, f.mul(size, size))
    t = f.select(large, f.intrinsic("sqrt", half), size)
    return large, f.fma(f.mul(t, z), polynomial(f, z, _ARCSIN[size.type.element]), t)
