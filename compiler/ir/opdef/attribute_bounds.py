"""Bounds of attribute values, as an op class declares them.

`groups = attr(1, at_least(1))` bounds a number, `strides = attr([1, 1], at_least(1))` each item of
a list. Integers have 32 bits as in the reference, `WIDE` ones 64.
"""

from __future__ import annotations

from typing import Any

from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

MAX_INT = 2**31 - 1
"""Maximum of an attribute of Paddle's type INT."""
_BITS_32 = (-(2**31), MAX_INT)
_BITS_64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Accepted:
    """A range of numbers from `low` to `high`, or a set of `choices`.

    A float without bounds may have any value; an integer is limited to Paddle's type INT, or to
    LONG if it is `wide`.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    wide: bool = False

    def has(self, value: Any) -> bool:
        """Return whether a value is accepted; NaN is in no range."""
        if self.choices:
            return value in self.choices
        if isinstance(value, int):
            low, high = self._integers
            return low <= value <= high or isinstance(value, bool)
        if not isinstance(value, float):
            return True
        low, high = self.low, self.high
        return (low is None or value >= low) and (high is None or value <= high)

    def expected(self, kind: type) -> str:
        """Describe the accepted values of a type, for error messages.

        >>> Accepted(low=1).expected(int), Accepted(choices=("a", "b")).expected(str)
        ('1 to 2147483647', "one of 'a', 'b'")
        """
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        low, high = self._integers if kind is int else (self.low, self.high)
        if low is None or high is None:
            return f"at least {low}" if high is None else f"at most {high}"
        return f"{low} to {high}"

    @cached_property
    def _integers(self) -> tuple[float, float]:
        """The smallest and the largest integer."""
        least, most = _BITS_64 if self.wide else _BITS_32
        return least if self.low is None else self.low, most if self.high is None else self.high


ANY = Accepted()
"""Any value of the attribute's type."""
WIDE = Accepted(wide=True)
"""Any 64-bit integer."""


FLOAT32 = 3.4028234663852886e38
"""The largest finite float32."""
FINITE = Accepted(-FLOAT32, FLOAT32)
"""Numbers that are neither infinite nor NaN."""
POSITIVE = Accepted(1e-37, FLOAT32)
"""Finite numbers greater than 0."""


def at_least(low: float) -> Accepted:
    """Accept numbers greater than or equal to `low`."""
    return Accepted(low=low)


def at_most(high: float) -> Accepted:
    """Accept numbers less than or equal to `high`."""
    return Accepted(high=high)


def between(low: float, high: float) -> Accepted:
    """Accept numbers from `low` to `high`, both included."""
    return Accepted(low=low, high=high)


def one_of(*choices: Any) -> Accepted:
    """Accept one of the given values."""
    return Accepted(choices=choices)
