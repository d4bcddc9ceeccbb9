"""Float arithmetic, rounded once: add, sub, mul, fma, div, rcp, sqrt, min, max, abs, neg."""

from fractions import Fraction
from math import isqrt

from tests.tools.ptx.floats import Format, Model


def finished(fmt: Format, model: Model, ftz: bool, sat: bool) -> Model:
    """A model with subnormal numbers flushed to 0 and its result clamped to [0, 1]."""

    def run(*operands: int) -> int | None:
        inputs = [fmt.flushed(bits) for bits in operands] if ftz else list(operands)
        bits = model(*inputs)
        if bits is None:
            return None
        bits = fmt.flushed(bits) if ftz else bits
        return saturated(fmt, bits) if sat else bits

    return run


def saturated(fmt: Format, bits: int) -> int:
    """A number clamped to [0, 1]; NaN becomes +0."""
    if fmt.is_nan(bits) or fmt.is_negative(bits):
        return 0
    return min(bits, fmt.one)


def fma(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`a * b + c`, rounded once."""

    def run(a: int, b: int, c: int) -> int | None:
        sign = (a ^ b) & fmt.sign
        if any(map(fmt.is_nan, (a, b, c))):
            return fmt.nan
        if fmt.is_infinite(a) or fmt.is_infinite(b):
            clash = fmt.is_infinite(c) and (c ^ sign) & fmt.sign
            zero = not fmt.magnitude(a) or not fmt.magnitude(b)
            return fmt.nan if clash or zero else fmt.infinity | sign
        if fmt.is_infinite(c):
            return c
        product = fmt.value(a) * fmt.value(b)
        zero = _zero_of_sum(fmt, sign, c & fmt.sign, mode, not product)
        return _unless_tiny(fmt, product + fmt.value(c), mode, zero, ftz)

    return run


def add(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`a + b`, as `a * 1 + b`."""
    whole = fma(fmt, mode, ftz)
    return lambda a, b: whole(a, fmt.one, b)


def sub(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`a - b`: the sum with b negated."""
    whole = add(fmt, mode, ftz)
    return lambda a, b: whole(a, b ^ fmt.sign)


def mul(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`a * b`, as a sum with a zero of the product's sign."""
    whole = fma(fmt, mode, ftz)
    return lambda a, b: whole(a, b, (a ^ b) & fmt.sign)


def div(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`a / b`."""

    def run(a: int, b: int) -> int | None:
        sign = (a ^ b) & fmt.sign
        both_zero = not fmt.magnitude(a) and not fmt.magnitude(b)
        both_infinite = fmt.is_infinite(a) and fmt.is_infinite(b)
        if fmt.is_nan(a) or fmt.is_nan(b) or both_zero or both_infinite:
            return fmt.nan
        if fmt.is_infinite(a) or not fmt.magnitude(b):
            return fmt.infinity | sign
        if fmt.is_infinite(b):
            return sign
        return _unless_tiny(fmt, fmt.value(a) / fmt.value(b), mode, sign, ftz)

    return run


def rcp(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """`1 / a`."""
    whole = div(fmt, mode, ftz)
    return lambda a: whole(fmt.one, a)


def sqrt(fmt: Format, mode: str = "rn", ftz: bool = False) -> Model:
    """The square root; of -0 it is -0, of other negative numbers NaN."""

    def run(a: int) -> int | None:
        if fmt.is_nan(a) or (fmt.is_negative(a) and fmt.magnitude(a)):
            return fmt.nan
        if fmt.is_infinite(a) or not fmt.magnitude(a):
            return a
        return _unless_tiny(fmt, root(fmt.value(a)), mode, 0, ftz)

    return run


def root(number: Fraction) -> Fraction:
    """A square root to 200 bits; one that is not exact has a last bit set, so it rounds right."""
    scaled = (number.numerator << 4400) // number.denominator
    whole = isqrt(scaled)
    exact = whole * whole == scaled and not (number.numerator << 4400) % number.denominator
    return Fraction((whole << 1) | (not exact), 1 << 2201)


def extreme(fmt: Format, largest: bool, nan: bool = False) -> Model:
    """Min or max: -0 is less than +0; NaN loses to a number, or wins with `.NaN`."""

    def order(bits: int) -> int:
        return -fmt.magnitude(bits) - 1 if fmt.is_negative(bits) else fmt.magnitude(bits)

    def run(*operands: int) -> int:
        numbers = [bits for bits in operands if not fmt.is_nan(bits)]
        if not numbers or (nan and len(numbers) < len(operands)):
            return fmt.nan
        return max(numbers, key=order) if largest else min(numbers, key=order)

    return run


def absolute(fmt: Format) -> Model:
    """The size; the sign of a NaN is open."""
    return lambda a: fmt.nan if fmt.is_nan(a) else fmt.magnitude(a)


def negated(fmt: Format) -> Model:
    """The negated number."""
    return lambda a: fmt.nan if fmt.is_nan(a) else a ^ fmt.sign


def copysign(fmt: Format) -> Model:
    """`b` with the sign of `a`, as PTX orders them."""
    return lambda a, b: fmt.magnitude(b) | (a & fmt.sign)


def _zero_of_sum(fmt: Format, first: int, second: int, mode: str, is_zero: bool) -> int:
    """The sign of a sum of 0: that of equal zeros, else + but for rounding down."""
    if is_zero and first == second:
        return first
    return fmt.sign if mode == "rm" else 0


def _unless_tiny(fmt: Format, exact: Fraction, mode: str, zero: int, ftz: bool) -> int | None:
    """The rounded number; open where flushing depends on whether it follows the rounding."""
    bits = fmt.rounded(exact, mode, zero)
    least = Fraction(2) ** fmt.least_exponent
    if ftz and 0 < abs(exact) < least and fmt.magnitude(bits) == 1 << fmt.fraction:
        return None
    return bits
