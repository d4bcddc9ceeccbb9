"""Powers: x ** y of floats as C defines it, and of integers.

|x| ** y is exp(y * log |x|). For single precision that is computed in double precision; for double
precision the logarithm is the sum of two numbers (T. Dekker, "A floating-point technique for
extending the available precision", 1971), so that the error of the product is below an ulp.
"""

from __future__ import annotations

from compiler.codegen.native.functions.exponentials import (
    LN_2,
    LOG2_E,
    biased,
    power_of_2,
    scaled_exp,
)
from compiler.codegen.native.functions.floats import (
    INFINITY,
    NAN,
    absolute,
    at_least,
    at_most,
    is_below,
    known_number,
    number,
    plus,
    polynomial,
    times,
)
from compiler.codegen.native.functions.logarithms import Decomposed, decompose
from compiler.codegen.native.llvm_ir import F32, F64, Function, Value, constant, zero

_LOG_TAIL = (
    *(0.195842144543852, 0.221761840352815, 0.2857210927645402, 0.3999999562068878),
    0.6666666667580406,
)
"""(log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2; the relative error of the log is 2**-45."""

_EXPM1_TAIL = (
    *(0.00019790337023044803, 0.0013944659865253897, 0.008333497083607923, 0.04166629494316218),
    *(0.16666665868897457, 0.500000006768387),
)
"""(exp(r) - 1 - r) / r**2; the relative error of exp(r) is 2**-34."""

_FINE_LOG_TAIL = (
    *(0.11989018045412671, 0.11674817919385556, 0.13336317447792836, 0.15384556870269026),
    *(0.18181818870324654, 0.22222222217536397, 0.2857142857144511, 0.3999999999999998),
)
"""((log((1 + s) / (1 - s)) / s - 2) / s**2 - 2/3) / s**2 in s**2; the relative error of the
logarithm is 2**-73."""

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_RANGE = (-746.0, 709.8)


def power(f: Function, x: Value, y: Value) -> Value:
    """Compute x ** y within 2 ulp; of integers, y is not negative and the product wraps."""
    product = _constant_power(f, x, known_number(y))
    if product:
        return product
    if not x.type.is_float:
        return _integer_power(f, x, y)
    size = absolute(f, x)
    result = _single(f, size, y) if x.type.element == "float" else _double(f, size, y)
    return _with_special_cases(f, x, y, result)


def _constant_power(f: Function, x: Value, exponent: float | None) -> Value | None:
    """Compute x to a power that one or two instructions compute; None for another."""
    if exponent in (0, 1):
        return x if exponent else number(x, 1)
    if exponent in (2, 3):
        square = f.mul(x, x)
        return square if exponent == 2 else f.mul(square, x)
    if not x.type.is_float or exponent not in (-1, 0.5):
        return None
    return f.div(number(x, 1.0), x) if exponent == -1 else _square_root(f, x)


def _with_special_cases(f: Function, x: Value, y: Value, size: Value) -> Value:
    """The power of any x, given that of |x|: the sign, NaN for fractional y, and 1."""
    one, none = number(x, 1.0), number(x, 0.0)
    is_whole = f.compare("oeq", f.intrinsic("trunc", y), y)
    half = times(f, y, 0.5)
    is_odd = f.binary("and", is_whole, f.compare("une", f.intrinsic("trunc", half), half))
    sign = f.select(is_odd, x, one)
    is_undefined = f.binary("and", is_below(f, x, 0.0), _is_fraction(f, x, is_whole))
    result = f.select(is_undefined, number(x, NAN), f.intrinsic("copysign", size, sign))
    is_one = f.binary("or", f.compare("oeq", y, none), f.compare("oeq", x, one))
    is_minus_one = f.compare("oeq", x, number(x, -1.0))
    at_infinity = f.compare("oeq", absolute(f, y), number(y, INFINITY))
    return f.select(f.binary("or", is_one, f.binary("and", is_minus_one, at_infinity)), one, result)


def _is_fraction(f: Function, x: Value, is_whole: Value) -> Value:
    """True where y is not integral, and x is finite."""
    finite = f.compare("ogt", x, number(x, -INFINITY))
    return f.binary("and", finite, f.binary("xor", is_whole, constant(is_whole.type, 1)))


def _single(f: Function, size: Value, y: Value) -> Value:
    """Compute size ** y in single precision, for numbers that are not negative."""
    wide = f.convert("fpext", size, F64)
    parts = decompose(f, wide, denormals=False)
    v = plus(f, parts.m, -1.0)
    s = f.div(v, plus(f, v, 2.0))
    z = f.mul(s, s)
    log_m = f.mul(s, f.fma(z, polynomial(f, z, _LOG_TAIL), number(z, 2.0)))
    log = f.fma(parts.k, number(v, LN_2["double"][0]), log_m)
    product = f.mul(f.convert("fpext", y, F64), _log_with_limits(f, wide, log))
    return f.convert("fptrunc", _exp_single(f, product), F32)


def _exp_single(f: Function, x: Value) -> Value:
    """Compute e ** x in double precision with the error of single precision, up to e ** 200."""
    x = at_most(f, at_least(f, x, -200.0), 200.0)
    magic = number(x, 1.5 * 2.0**52)
    rounded = f.fma(x, number(x, LOG2_E), magic)
    r = f.fma(f.sub(rounded, magic), number(x, -LN_2["double"][0]), x)
    u = f.fma(f.mul(r, r), polynomial(f, r, _EXPM1_TAIL), r)
    scale = power_of_2(f, rounded, biased(x, 0))
    return f.fma(scale, u, scale)


def _log_with_limits(f: Function, size: Value, log: Value) -> Value:
    """The logarithm of a number that is not negative, given that of positive finite ones."""
    some = f.select(is_below(f, size, INFINITY), log, size)
    return f.select(f.compare("oeq", size, number(size, 0.0)), number(size, -INFINITY), some)


def _double(f: Function, size: Value, y: Value) -> Value:
    """Compute size ** y in double precision, for numbers that are not negative."""
    high, low = _fine_log(f, decompose(f, size))
    high = _log_with_limits(f, size, high)
    product = f.mul(y, high)
    rest = f.fma(y, low, f.fma(y, high, f.neg(product)))
    rest = f.select(is_below(f, absolute(f, product), 800.0), rest, number(y, 0.0))
    return scaled_exp(f, at_most(f, at_least(f, product, _RANGE[0]), _RANGE[1]), rest)


def _fine_log(f: Function, parts: Decomposed) -> tuple[Value, Value]:
    """log(2**k * m) as the sum of two numbers, with a relative error of 2**-64."""
    near, far = LN_2["double"]
    high, low = _fine_log_of_significand(f, parts.m)
    whole = times(f, parts.k, near)
    rest = f.fma(parts.k, number(whole, far), f.fma(parts.k, number(whole, near), f.neg(whole)))
    total = f.add(whole, high)
    error = f.add(f.sub(whole, total), high)
    return total, f.add(error, f.add(rest, low))


def _fine_log_of_significand(f: Function, m: Value) -> tuple[Value, Value]:
    """log(m) = 2 s + s**3 * (2/3 + …) for s = (m - 1) / (m + 1), each the sum of two numbers."""
    s, s_low = _fine_ratio(f, plus(f, m, -1.0))
    z, z_low = _product(f, s, s)
    z_low = f.fma(times(f, s, 2.0), s_low, z_low)
    tail = f.mul(z, polynomial(f, z, _FINE_LOG_TAIL))
    a, a_low = _sum(f, number(m, _TWO_THIRDS[0]), tail)
    b, b_low = _product(f, z, a)
    b_low = f.fma(z, plus(f, a_low, _TWO_THIRDS[1]), f.fma(z_low, a, b_low))
    c, c_low = _sum(f, number(m, 2.0), b)
    high, low = _product(f, s, c)
    return high, f.fma(s, f.add(c_low, b_low), f.fma(s_low, c, low))


def _fine_ratio(f: Function, v: Value) -> tuple[Value, Value]:
    """Compute v / (2 + v) as the sum of two numbers."""
    below = plus(f, v, 2.0)
    below_low = f.sub(v, plus(f, below, -2.0))
    inverse = f.div(number(v, 1.0), below)
    s = f.mul(v, inverse)
    rest = f.fma(f.neg(s), below_low, f.fma(f.neg(s), below, v))
    return s, f.mul(rest, inverse)


def _product(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """Compute a * b and its rounding error."""
    high = f.mul(a, b)
    return high, f.fma(a, b, f.neg(high))


def _sum(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """Compute a + b and its rounding error, for |a| >= |b|."""
    high = f.add(a, b)
    return high, f.add(f.sub(a, high), b)


def _integer_power(f: Function, x: Value, y: Value) -> Value:
    """Multiply the squares that the exponent's bits name."""
    bits = x.type.bits
    one, none = constant(x.type, 1), zero(x.type)

    def step(_: Value, carried: list[Value]) -> list[Value]:
        result, factor, rest = carried
        is_set = f.compare("ne", f.binary("and", rest, one), none)
        taken = f.select(is_set, f.mul(result, factor), result)
        return [taken, f.mul(factor, factor), f.binary("lshr", rest, one)]

    return f.loop(0, bits, 1, step, [one, x, y])[0]


def _square_root(f: Function, x: Value) -> Value:
    """Compute x ** 0.5, which is 0 for -0 and infinite for both infinities."""
    root = f.intrinsic("sqrt", plus(f, x, 0.0))
    is_least = f.compare("oeq", x, number(x, -INFINITY))
    return f.select(is_least, number(x, INFINITY), root)
