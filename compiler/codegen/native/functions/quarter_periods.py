"""Reduce angles to a quadrant and a distance from the nearest multiple of pi/2.

Up to 2**17 (single precision) and 2**30 (double) the multiple is subtracted as three numbers
(W. Cody and W. Waite). Larger angles are multiplied by the bits of 2/pi that matter (M. Payne and
R. Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983), each lane
for itself, behind a branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from compiler.codegen.native.functions.floats import (
    INFINITY,
    NAN,
    any_lane,
    bits_of,
    format_of,
    is_below,
    number,
    times,
)
from compiler.codegen.native.llvm_ir import F64, I64, Function, Type, Value, constant, zero
from compiler.support.dataclass import dataclass

_TWO_OVER_PI = 0.6366197723675814

_HALF_PI: Mapping[str, tuple[float, float, float]] = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""pi/2 as the sum of three numbers of a type."""

_LIMIT: Mapping[str, float] = {"float": 2.0**17, "double": 2.0**30}

_WORDS = (
    *(0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561),
    *(0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484),
    *(0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F),
    *(0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B),
    *(0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D),
)
"""The bits of 2/pi behind the point, after 64 zeros."""

_I128 = Type("i128")


@dataclass(frozen=True)
class Angle:
    """An angle: its quadrant in the lowest two bits of an integer, and the rest, from -pi/4."""

    quadrant: Value
    r: Value


def reduce_angle(f: Function, size: Value) -> Angle:
    """Reduce an angle that is not negative; the rest is NaN for infinity and NaN."""
    near = _reduce_near(f, size)
    far = f.compare("uge", size, number(size, _LIMIT[size.type.element]))
    quadrant, r = f.choose(
        any_lane(f, far),
        lambda: _reduce_far(f, size, far, near),
        lambda: [near.quadrant, near.r],
    )
    return Angle(quadrant, r)


def _reduce_near(f: Function, size: Value) -> Angle:
    magic = number(size, format_of(size).magic)
    rounded = f.fma(size, number(size, _TWO_OVER_PI), magic)
    n, r = f.sub(rounded, magic), size
    for part in _HALF_PI[size.type.element]:
        r = f.fma(n, number(size, -part), r)
    return Angle(bits_of(f, rounded), r)


def _reduce_far(f: Function, size: Value, far: Value, near: Angle) -> list[Value]:
    """Replace the lanes that are far from 0."""
    if not size.type.lanes:
        quadrant, r = _reduce_lane(f, size)
    else:

        def lane(i: Value, carried: list[Value]) -> list[Value]:
            reduced = _reduce_lane(f, f.extract(size, i))
            return [f.insert(all_, one, i) for all_, one in zip(carried, reduced, strict=True)]

        quadrant, r = f.loop(0, size.type.lanes, 1, lane, [near.quadrant, near.r])
    r = f.select(is_below(f, size, INFINITY), r, number(size, NAN))
    return [f.select(far, quadrant, near.quadrant), f.select(far, r, near.r)]


def _reduce_lane(f: Function, x: Value) -> tuple[Value, Value]:
    """Reduce a scalar of at least 2**-9 to its quadrant and rest, by integers."""
    wide = x if x.type.element == "double" else f.convert("fpext", x, F64)
    turns = _fraction_of_turn(f, bits_of(f, wide))
    quadrant, r = _split_turn(f, turns)
    if x.type.element == "double":
        return quadrant, r
    return f.convert("trunc", quadrant, format_of(x).integer), f.convert("fptrunc", r, x.type)


def _fraction_of_turn(f: Function, bits: Value) -> Value:
    """The fraction of x / (2 pi), of 128 bits, from the bits of x.

    With x = m * 2**e, bits of 2/pi before e - 2 add whole turns, and are left out.
    """
    fraction = f.binary("and", bits, constant(I64, (1 << 52) - 1))
    m = f.convert("zext", f.binary("or", fraction, constant(I64, 1 << 52)), _I128)
    first = f.add(f.binary("lshr", bits, constant(I64, 52)), constant(I64, 64 - 2 - 1075))
    a, b, c = (f.convert("zext", word, _I128) for word in _bits_from(f, first))
    low = f.binary("lshr", f.mul(m, c), constant(_I128, 64))
    high = f.binary("shl", f.mul(m, a), constant(_I128, 64))
    return f.add(high, f.add(f.mul(m, b), low))


def _bits_from(f: Function, first: Value) -> list[Value]:
    """Three words of the bits of 2/pi from a number of bits."""
    table = Value(f"<{', '.join(f'i64 {word}' for word in _WORDS)}>", I64.vector(len(_WORDS)))
    place = f.binary("lshr", first, constant(I64, 6))
    place = f.intrinsic("umin", place, constant(I64, len(_WORDS) - 4))
    words = [f.extract(table, f.add(place, constant(I64, offset))) for offset in range(4)]
    return [f.intrinsic("fshl", a, b, first) for a, b in pairwise(words)]


def _split_turn(f: Function, turn: Value) -> tuple[Value, Value]:
    """The nearest quadrant of a fraction of a turn, and the rest as an angle."""
    fourths = f.convert("trunc", f.binary("lshr", turn, constant(_I128, 126)), I64)
    rest = f.binary("shl", turn, constant(_I128, 2))
    sign = f.binary("ashr", rest, constant(_I128, 127))
    size = f.sub(f.binary("xor", rest, sign), sign)
    high = f.convert("trunc", f.binary("lshr", size, constant(_I128, 64)), I64)
    low = f.convert("trunc", size, I64)
    rest_size = f.add(_fraction(f, high, 2.0**-64), _fraction(f, low, 2.0**-128))
    near, far, _ = _HALF_PI["double"]
    r = f.fma(rest_size, number(rest_size, near), times(f, rest_size, far))
    is_negative = f.compare("slt", rest, zero(_I128))
    quadrant = f.sub(fourths, f.convert("trunc", sign, I64))
    return quadrant, f.select(is_negative, f.neg(r), r)


def _fraction(f: Function, word: Value, unit: float) -> Value:
    return times(f, f.convert("uitofp", word, F64), unit)
