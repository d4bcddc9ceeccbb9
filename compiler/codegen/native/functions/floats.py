"""Parts of elementary functions: formats of floats, their bits, polynomials and clamps.

Values are scalars or vectors of float or double; every lane is computed alike, so a result does
not depend on the number of lanes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence

from compiler.codegen.native.llvm_ir import (
    F32,
    F64,
    I32,
    I64,
    Function,
    Type,
    Value,
    constant,
)
from compiler.support.dataclass import dataclass

INFINITY, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Format:
    """A floating-point format: stored bits of the significand, exponent bias, integer type.

    `magic` is 1.5 * 2**mantissa: adding it to a small number rounds that to an integer, which is
    then in the lowest bits of the sum.
    """

    mantissa: int
    bias: int
    integer: Type

    @property
    def magic(self) -> float:
        """The number whose sum with a small number is rounded to an integer."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full significand."""
        return 2.0 ** (1 - self.bias)

    @property
    def sign(self) -> int:
        """The sign bit, as a signed integer."""
        return -(1 << (self.integer.bits - 1))


_FORMATS: Mapping[str, Format] = {"float": Format(23, 127, I32), "double": Format(52, 1023, I64)}


def format_of(x: Value) -> Format:
    """The format of a value's elements."""
    return _FORMATS[x.type.element]


def number(x: Value, value: float) -> Value:
    """A constant of the type of `x`."""
    return constant(x.type, value)


def known_number(x: Value) -> float | None:
    """The number that a constant has in each lane; None for a value computed at run time.

    >>> known_number(constant(F32.vector(4), 2.0)), known_number(constant(I32, -3))
    (2.0, -3.0)
    >>> known_number(Value("<i32 0, i32 1>", I32.vector(2))), known_number(Value("%v1", F64))
    (None, None)
    """
    if x.name.startswith("%"):
        return None
    if x.name == "zeroinitializer":
        return 0.0
    literals = {part.split()[-1].rstrip(")>") for part in x.name.split(",")}
    return _literal(x.type, literals.pop()) if len(literals) == 1 else None


def _literal(type: Type, text: str) -> float | None:
    """The number of a literal; None for one that is no number of float, double or an integer."""
    if type.is_float and re.fullmatch("0x[0-9A-F]{16}", text):
        return struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]
    if text in ("true", "false"):
        return float(text == "true")
    return float(text) if not type.is_float and re.fullmatch("-?[0-9]+", text) else None


def bits_of(f: Function, x: Value) -> Value:
    """The bits of floats as integers."""
    return f.convert("bitcast", x, format_of(x).integer)


def float_of(f: Function, bits: Value) -> Value:
    """The floats that integers are the bits of."""
    return f.convert("bitcast", bits, F32 if bits.type.bits == 32 else F64)


def polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial by Horner's rule; the coefficient of the highest power is first."""
    result = number(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = f.fma(result, x, number(x, coefficient))
    return result


def absolute(f: Function, x: Value) -> Value:
    """|x|."""
    return f.intrinsic("fabs", x)


def with_sign(f: Function, x: Value, sign: Value) -> Value:
    """|x| with the sign of another value."""
    return f.intrinsic("copysign", x, sign)


def at_most(f: Function, x: Value, bound: float) -> Value:
    """The minimum of x and a number; NaN stays NaN."""
    limit = number(x, bound)
    return f.select(f.compare("olt", limit, x), limit, x)


def at_least(f: Function, x: Value, bound: float) -> Value:
    """The maximum of x and a number; NaN stays NaN."""
    limit = number(x, bound)
    return f.select(f.compare("ogt", limit, x), limit, x)


def is_below(f: Function, x: Value, bound: float) -> Value:
    """True where x < bound; false for NaN."""
    return f.compare("olt", x, number(x, bound))


def plus(f: Function, x: Value, value: float) -> Value:
    """Compute x plus a number."""
    return f.add(x, number(x, value))


def times(f: Function, x: Value, value: float) -> Value:
    """Compute x times a number."""
    return f.mul(x, number(x, value))


def any_lane(f: Function, condition: Value) -> Value:
    """True if a condition holds in a lane."""
    return f.reduce("or", condition) if condition.type.lanes else condition
