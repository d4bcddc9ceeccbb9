"""Ranges of integers with symbolic ends: what is known of the values of an index.

A range has several lower and upper ends, each of which holds: sizes are symbolic, so that the
tightest is often not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from compiler.ir.dims import Size
from compiler.support.dataclass import dataclass

Ends: TypeAlias = "tuple[Size, ...]"
"""Values that all bound an index from the same side; none if nothing is known."""

MOST_ENDS = 4
"""Ends that are kept of each side."""


@dataclass(frozen=True)
class Range:
    """Every value of an index is at least each of `low`, and at most each of `high`."""

    low: Ends = ()
    high: Ends = ()

    def __and__(self, other: Range) -> Range:
        return Range(highest((*self.low, *other.low)), lowest((*self.high, *other.high)))

    def __or__(self, other: Range) -> Range:
        low = (a if is_at_most(a, b) else b for a, b in _comparable(self.low, other.low))
        high = (b if is_at_most(a, b) else a for a, b in _comparable(self.high, other.high))
        return Range(highest((*low,)), lowest((*high,)))

    def __add__(self, other: Range) -> Range:
        low = (a + b for a in self.low for b in other.low)
        return Range(highest((*low,)), lowest((*(a + b for a in self.high for b in other.high),)))

    def __neg__(self) -> Range:
        return Range(tuple(-end for end in self.high), tuple(-end for end in self.low))

    def times(self, size: Size) -> Range:
        """The range of the product with a number or a size, which is not negative."""
        if isinstance(size, int) and size < 0:
            return (-self).times(-size)
        return Range(*(tuple(end * size for end in ends) for ends in (self.low, self.high)))

    @property
    def bounded(self) -> Range:
        """Itself, as the range of a result of arithmetic: nothing if one side is not known.

        What is computed from numbers without a bound may overflow, to the other side.
        """
        return self if self.low and self.high else ANY

    def fits(self, least: int, most: int, takes_sizes: bool) -> bool:
        """True if all values are in the limits of a type; open sizes are if it `takes_sizes`."""
        ends = (*self.low, *self.high)
        return bool(self.low and self.high) and all(
            least <= end <= most if isinstance(end, int) else takes_sizes for end in ends
        )

    @property
    def is_positive(self) -> bool:
        """True if no value is known to be negative."""
        return any(is_at_most(0, end) for end in self.low)


ANY = Range()
"""The range of an index of which nothing is known."""


def exactly(size: Size) -> Range:
    """The range of one value."""
    return Range((size,), (size,))


def below(size: Size) -> Range:
    """The range of an index of `size` elements."""
    return Range((0,), (size - 1,))


def is_at_most(a: Size, b: Size) -> bool:
    """True if `a <= b` for all values of the names in them, which are not negative."""
    rest = b - a
    return rest >= 0 if isinstance(rest, int) else all(number >= 0 for _, number in rest.terms)


def _comparable(a: Ends, b: Ends) -> Iterator[tuple[Size, Size]]:
    return ((x, y) for x in a for y in b if is_at_most(x, y) or is_at_most(y, x))


def lowest(ends: Ends) -> Ends:
    """The upper ends that no other one implies."""
    return _tightest(ends, is_at_most)


def highest(ends: Ends) -> Ends:
    """The lower ends that no other one implies."""
    return _tightest(ends, lambda a, b: is_at_most(b, a))


def _tightest(ends: Ends, implies: Callable[[Size, Size], bool]) -> Ends:
    tightest: list[Size] = []
    for end in dict.fromkeys(ends):
        if not any(implies(other, end) for other in tightest):
            tightest = [other for other in tightest if not implies(end, other)] + [end]
    return tuple(tightest[:MOST_ENDS])
