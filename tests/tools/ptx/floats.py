"""Floating-point numbers of any width as bits, with exact rounding by fractions.

Written from the PTX ISA alone and independent of the machine in `tools/ptx`: nothing here uses
NumPy or hardware arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

MODES = ("rn", "rz", "rm", "rp", "rna")
"""To nearest even, to zero, down, up, to nearest with ties away from zero."""

Model = Callable[..., int | None]
"""What an instruction computes: bits of its operands to bits of its result.

None means that PTX leaves the result open for these operands.
"""


@dataclass(frozen=True)
class Format:
    """A binary format: a sign, `exponent` bits and `fraction` bits."""

    exponent: int
    fraction: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def sign(self) -> int:
        """The sign bit; -0 as bits."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def nan(self) -> int:
        """The canonical NaN: every bit but the sign set, but for double precision."""
        return 0xFFF8000000000000 if self.bits == 64 else self.sign - 1

    @property
    def one(self) -> int:
        return ((1 << (self.exponent - 1)) - 1) << self.fraction

    def magnitude(self, bits: int) -> int:
        return bits & (self.sign - 1)

    def is_nan(self, bits: int) -> bool:
        return self.magnitude(bits) > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return self.magnitude(bits) == self.infinity

    def is_negative(self, bits: int) -> bool:
        return bool(bits & self.sign)

    def is_subnormal(self, bits: int) -> bool:
        return 0 < self.magnitude(bits) < 1 << self.fraction

    def flushed(self, bits: int) -> int:
        """A subnormal number as a zero with its sign; other numbers as they are."""
        return bits & self.sign if self.is_subnormal(bits) else bits

    def value(self, bits: int) -> Fraction:
        """The value of a finite number."""
        magnitude = self.magnitude(bits)
        field, rest = divmod(magnitude, 1 << self.fraction)
        whole = rest + (1 << self.fraction if field else 0)
        power = max(field, 1) - 1 + self.least_exponent - self.fraction
        number = Fraction(whole << power) if power >= 0 else Fraction(whole, 1 << -power)
        return -number if self.is_negative(bits) else number

    def rounded(self, number: Fraction, mode: str = "rn", zero: int = 0) -> int:
        """The bits of a number; `zero` is the result where it is exactly 0."""
        if not number:
            return zero
        negative, size = number < 0, abs(number)
        exponent = max(_exponent(size), self.least_exponent)
        power = exponent - self.fraction
        scaled = size / (1 << power) if power >= 0 else size * (1 << -power)
        whole = rounded_whole(scaled, mode, negative)
        bits = ((exponent - self.least_exponent) << self.fraction) + whole
        if bits >= self.infinity:
            bits = self.infinity - (not _overflows(mode, negative))
        return bits | (self.sign if negative else 0)


F16, BF16, TF32 = Format(5, 10), Format(8, 7), Format(8, 10)
F32, F64 = Format(8, 23), Format(11, 52)
FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "f64": F64}


def rounded_whole(size: Fraction, mode: str, negative: bool = False) -> int:
    """A size rounded to a whole number; `negative` tells "down" from "up"."""
    whole, rest = divmod(size.numerator, size.denominator)
    twice = 2 * rest - size.denominator
    up = {
        "rn": twice > 0 or (twice == 0 and whole & 1 == 1),
        "rna": twice >= 0,
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    return whole + up


def _exponent(size: Fraction) -> int:
    """The largest power of two that is no more than a positive number."""
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    low = Fraction(1 << guess) if guess >= 0 else Fraction(1, 1 << -guess)
    return guess if low <= size else guess - 1


def _overflows(mode: str, negative: bool) -> bool:
    """Whether numbers too large become infinity rather than the largest number."""
    return mode in ("rn", "rna") or mode == ("rm" if negative else "rp")
