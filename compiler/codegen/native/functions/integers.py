"""Division of integers as in NumPy, where x / 0 is 0, and what differs for unsigned integers.

CPUs have no division of integer vectors. Quotients of up to 32 bits are computed by floats, whose
truncated quotient is exact when they have as many bits as two operands.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.native.llvm_ir import F32, F64, Function, Value, constant, zero

Division = Callable[[Function, Value, Value], Value]


def floor_divide(f: Function, x: Value, y: Value) -> Value:
    """The quotient of signed integers, rounded down."""
    quotient = _signed_quotient(f, x, y)
    rest = f.sub(x, f.mul(quotient, y))
    one = constant(x.type, 1)
    floored = f.select(_rounds_down(f, rest, y), f.sub(quotient, one), quotient)
    return _zero_for_zero(f, y, floored)


def remainder(f: Function, x: Value, y: Value) -> Value:
    """The remainder of signed integers, with the sign of y."""
    rest = f.sub(x, f.mul(_signed_quotient(f, x, y), y))
    return _zero_for_zero(f, y, f.select(_rounds_down(f, rest, y), f.add(rest, y), rest))


def fmod(f: Function, x: Value, y: Value) -> Value:
    """The remainder of signed integers, with the sign of x."""
    return _zero_for_zero(f, y, f.sub(x, f.mul(_signed_quotient(f, x, y), y)))


def _rounds_down(f: Function, rest: Value, y: Value) -> Value:
    """True where a remainder is not 0, and its sign is not that of the divisor."""
    differs = f.compare("slt", f.binary("xor", rest, y), zero(y.type))
    return f.binary("and", differs, f.compare("ne", rest, zero(rest.type)))


def _zero_for_zero(f: Function, y: Value, result: Value) -> Value:
    return f.select(f.compare("eq", y, zero(y.type)), zero(y.type), result)


def _signed_quotient(f: Function, x: Value, y: Value) -> Value:
    """The truncated quotient; any number for y = 0. The smallest integer / -1 wraps."""
    is_minus_one = f.compare("eq", y, constant(y.type, -1))
    is_special = f.binary("or", is_minus_one, f.compare("eq", y, zero(y.type)))
    divisor = f.select(is_special, constant(y.type, 1), y)
    quotient = _quotient(f, x, divisor, "s")
    return f.select(is_minus_one, f.neg(x), quotient)


def _quotient(f: Function, x: Value, y: Value, sign: str) -> Value:
    """The truncated quotient of integers that are signed ("s") or not ("u")."""
    if x.type.bits == 64:
        return f.binary(f"{sign}div", x, y)
    element = F64 if x.type.bits == 32 else F32
    a, b = (f.convert(f"{sign}itofp", operand, element) for operand in (x, y))
    return f.convert(f"fpto{sign}i", f.div(a, b), x.type.scalar)


def unsigned_floor_divide(f: Function, x: Value, y: Value) -> Value:
    """The quotient of unsigned integers, rounded down."""
    divisor = f.select(f.compare("eq", y, zero(y.type)), constant(y.type, 1), y)
    return _zero_for_zero(f, y, _quotient(f, x, divisor, "u"))


def unsigned_remainder(f: Function, x: Value, y: Value) -> Value:
    """The remainder of unsigned integers."""
    rest = f.sub(x, f.mul(unsigned_floor_divide(f, x, y), y))
    return _zero_for_zero(f, y, rest)


def unsigned_magnitude(f: Function, x: Value) -> Value:
    """Return x, which has no sign."""
    return x


def unsigned_sign(f: Function, x: Value) -> Value:
    """0 or 1."""
    return f.convert("zext", f.compare("ne", x, zero(x.type)), x.type.scalar)


def unsigned_reciprocal(f: Function, x: Value) -> Value:
    """1 for 1, else 0."""
    return f.convert("zext", f.compare("eq", x, constant(x.type, 1)), x.type.scalar)
