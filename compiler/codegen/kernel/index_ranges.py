"""The smallest and the largest value that an index of a kernel can have.

Ends of ranges follow from sizes of axes and loops, from arithmetic, from the
numbers that an array is known to have, and from the condition under which an access happens:
`0 <= row` and `row < rows` bound `row` where both hold. Of NaN no comparison holds, so that a
condition bounds floats too; their arithmetic does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil, floor, isfinite
from typing import TypeAlias, cast

from compiler.codegen.kernel.analysis import integer_limits
from compiler.codegen.kernel.body import KernelBody, Source, number_of, size_of
from compiler.codegen.kernel.ranges import (
    ANY,
    Ends,
    Range,
    below,
    exactly,
    highest,
    is_at_most,
    lowest,
)
from compiler.codegen.trace import Expr, Term
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass

MOST_CONDITIONS = 2
"""Conditions that bound an expression at once: one for each choice of a search takes too long."""


@dataclass
class Facts:
    """What is known when a kernel starts.

    `numbers` are ranges of all elements of arrays, by name; `sizes` are pairs of which the first is
    at most the second.
    """

    numbers: dict[str, Range] = field(default_factory=dict[str, Range])
    sizes: list[tuple[Size, Size]] = field(default_factory=list["tuple[Size, Size]"])

    def store(self, array: str, numbers: Range, is_whole: bool) -> bool:
        """Learn what an array has after a store; False if what was known may not hold any more."""
        previous = self.numbers.get(array)
        if previous is None:
            if is_whole and numbers != ANY:
                self.numbers[array] = numbers
            return True
        return previous == ANY or previous | numbers == previous

    def is_at_most(self, a: Size, b: Size) -> bool:
        """True if `a <= b` follows from the signs of sizes and from one pair at most."""
        if is_at_most(a, b):
            return True
        return any(is_at_most(a + (more - less), b) for less, more in self.sizes)


@dataclass
class IndexRanges:
    """The ranges of a kernel's integer expressions.

    `known` are ranges of expressions beyond what their arithmetic says, as `conditions` give them.
    """

    kernel: KernelBody
    facts: Facts = field(default_factory=Facts)
    known: Mapping[Expr, Range] = field(default_factory=dict[Expr, Range])
    conditions: int = 0
    _where: dict[Expr, IndexRanges] = field(default_factory=dict[Expr, "IndexRanges"])
    _ranges: dict[Expr, Range] = field(default_factory=dict[Expr, Range])

    def of(self, term: Term) -> Range:
        """The range of an index."""
        size = size_of(term)
        if size is not None:
            return exactly(size)
        if not isinstance(term, Expr):
            is_finite = isinstance(term, float) and isfinite(term)
            return Range((floor(term),), (ceil(term),)) if is_finite else ANY
        if term not in self._ranges:
            self._ranges[term] = self.known.get(term, ANY) & self._computed(term)
        return self._ranges[term]

    def where(self, condition: Term | None) -> IndexRanges:
        """The ranges where a condition holds; its own if that is within several others."""
        if not isinstance(condition, Expr) or self.conditions == MOST_CONDITIONS:
            return self
        if condition not in self._where:
            self._where[condition] = self._given(condition)
        return self._where[condition]

    def _given(self, condition: Expr) -> IndexRanges:
        """The ranges where a condition holds."""
        facts: dict[Expr, Range] = {}
        for part, range in self._facts(condition):
            facts[part] = facts.get(part, ANY) & range
        if not facts:
            return self
        merged = {part: self.known.get(part, ANY) & range for part, range in facts.items()}
        ranges = {**self.known, **merged}
        return IndexRanges(self.kernel, self.facts, ranges, self.conditions + 1)

    # ---- arithmetic ----

    def _computed(self, term: Expr) -> Range:
        rule = _RULES.get(term.fn)
        if rule is None or (term.dtype.is_float and term.fn != "where"):
            return ANY
        return rule(self, term)

    def load(self, term: Expr) -> Range:
        """An element of an array: what is known of all its numbers, and of their type."""
        source = cast(Source, term.extra)
        numbers = self.facts.numbers.get(source.operand.name, ANY)
        if term.dtype is DType.BOOL:
            return Range((0,), (1,))
        limits = integer_limits(term.dtype) if term.dtype.itemsize < 4 else None
        numbers &= ANY if limits is None else Range((limits[0],), (limits[1],))
        rank = len(source.shape)
        return numbers | self.of(term.args[rank + 1]) if len(term.args) > rank else numbers

    def index(self, term: Expr) -> Range:
        """The index of an axis."""
        return below(self.kernel.shape[number_of(term)])

    def loop(self, term: Expr) -> Range:
        """The index of a loop: below its size, and below its end."""
        number = number_of(term)
        whole, end = below(self.kernel.loops[number]), self.kernel.ends.get(number)
        if end is None:
            return whole
        return whole & Range((), tuple(limit - 1 for limit in self.of(end).high))

    def sum(self, term: Expr) -> Range:
        """A sum, or a difference; of a position and an iteration, below the end of both."""
        a, b = term.args
        if term.fn == "subtract":
            return (self.of(a) + -self.of(b)).bounded
        total = (self.of(a) + self.of(b)).bounded
        for start, step in ((a, b), (b, a)):
            total &= self._within(start, step)
        return total

    def _within(self, start: Term, step: Term) -> Range:
        """The range of `start + step`, for a loop's index that ends at `end - start`."""
        if not isinstance(step, Expr) or step.fn != "loop":
            return ANY
        end = self.kernel.ends.get(number_of(step))
        if end is None or end.fn != "subtract" or end.args[1] is not start:
            return ANY
        return Range((), tuple(limit - 1 for limit in self.of(end.args[0]).high))

    def product(self, term: Expr) -> Range:
        """A product, if a factor is a size."""
        a, b = term.args
        if (size := size_of(b)) is not None:
            return self.of(a).times(size).bounded
        if (size := size_of(a)) is not None:
            return self.of(b).times(size).bounded
        a, b = map(self.of, (a, b))
        both = a.is_positive and b.is_positive
        high = (x * y for x in a.high for y in b.high)
        return Range((0,), lowest((*high,))).bounded if both else ANY

    def negative(self, term: Expr) -> Range:
        """A negated index."""
        return (-self.of(term.args[0])).bounded

    def quotient(self, term: Expr) -> Range:
        """A quotient, rounded down, by a positive number or a size that is not zero."""
        dividend, divisor = self.of(term.args[0]), size_of(term.args[1])
        if divisor is None:
            is_natural = dividend.is_positive and self._is_above_zero(term.args[1])
            return Range((0,), dividend.high) if is_natural else ANY
        if not self._is_positive(divisor):
            return ANY
        if term.fn == "index_div" and not dividend.is_positive:
            return ANY
        ends = (tuple(_quotient(end, divisor) for end in side) for side in _sides(dividend))
        return Range(*ends)

    def remainder(self, term: Expr) -> Range:
        """What is left of a division, rounded down."""
        dividend, divisor = self.of(term.args[0]), size_of(term.args[1])
        if term.fn == "index_mod" and not dividend.is_positive:
            return ANY
        if divisor is None:
            ends = self.of(term.args[1]).high if self._is_above_zero(term.args[1]) else ()
            return Range((0,), tuple(end - 1 for end in ends)) if ends else ANY
        if not self._is_positive(divisor):
            return ANY
        whole = below(divisor)
        return Range(whole.low, lowest((*whole.high, *dividend.high * dividend.is_positive)))

    def _is_positive(self, size: Size) -> bool:
        """True for a size that is not zero where the kernel runs, as a factor of its iterations."""
        if not isinstance(size, Dim) or is_at_most(1, size):
            return not isinstance(size, int) or size > 0
        iterations = product((*self.kernel.shape, *self.kernel.loops))
        return iterations // size * size == iterations

    def _is_above_zero(self, term: Term) -> bool:
        return any(is_at_most(1, end) for end in self.of(term).low)

    def maximum(self, term: Expr) -> Range:
        """The larger of two."""
        a, b = map(self.of, term.args)
        return Range(highest((*a.low, *b.low)), (a | b).high)

    def minimum(self, term: Expr) -> Range:
        """The smaller of two."""
        a, b = map(self.of, term.args)
        return Range((a | b).low, lowest((*a.high, *b.high)))

    def choice(self, term: Expr) -> Range:
        """One of two, by a condition that bounds the first."""
        condition, a, b = term.args
        return self.where(condition).of(a) | self.where_not(condition).of(b)

    def cast(self, term: Expr) -> Range:
        """An integer in another type; one that may not fit there can have any value."""
        (inner,) = term.args
        if not isinstance(inner, Expr):
            return ANY
        if DType.BOOL in (inner.dtype, term.dtype):
            return Range((0,), (1,))
        values = self.of(inner)
        if term.dtype.is_float:
            return values
        fits = values.fits(*integer_limits(term.dtype), takes_sizes=term.dtype.itemsize >= 4)
        return values if fits else ANY

    def ravel(self, term: Expr) -> Range:
        """The number of an element in a shape."""
        shape = cast(Shape, term.extra)
        total = exactly(0)
        for axis, index in enumerate(term.args):
            total = total + self.of(index).times(product(shape[axis + 1 :]))
        return total

    def order(self, term: Expr) -> Range:
        """A position of a sorted loop."""
        return self.of(term.args[1])

    def drawn(self, term: Expr) -> Range:
        """A random number below a span; any number if that may be 0 or less."""
        size = size_of(term.args[2])
        is_positive = self._is_above_zero(term.args[2]) if size is None else self._is_positive(size)
        return (
            ANY
            if not is_positive
            else Range((0,), tuple(end - 1 for end in self.of(term.args[2]).high))
        )

    def reduction(self, term: Expr) -> Range:
        """The smallest or largest of the values of a loop, which may have no iterations."""
        value, over = term.args[:2]
        if term.extra == "sum":
            range_of_value = self.of(value)
            most = self.kernel.loops[number_of(cast(Expr, over))]
            return (
                Range((0,), range_of_value.times(most).high).bounded
                if range_of_value.is_positive
                else ANY
            )
        if term.extra not in ("min", "max"):
            return ANY
        size = self.kernel.loops[number_of(cast(Expr, over))]
        is_known = number_of(cast(Expr, over)) not in self.kernel.ends and is_at_most(1, size)
        return self.of(value) if is_known else ANY

    # ---- conditions ----

    def where_not(self, condition: Term) -> IndexRanges:
        """The ranges where a condition does not hold."""
        opposite = self._opposite(condition)
        return self if opposite is None else self.where(opposite)

    def _opposite(self, condition: Term) -> Expr | None:
        """The comparison of integers that holds where another one does not."""
        if not isinstance(condition, Expr) or _has_floats(condition.args):
            return None
        if condition.fn not in _OPPOSITE:
            return None
        return self.kernel.node(_OPPOSITE[condition.fn], condition.args, condition.dtype)

    def _facts(self, condition: Term | None) -> Iterator[tuple[Expr, Range]]:
        """The ranges that a condition gives to expressions."""
        if not isinstance(condition, Expr):
            return
        if condition.fn in ("logical_and", "multiply") and condition.dtype is DType.BOOL:
            for part in condition.args:
                yield from self._facts(part)
        elif condition.fn == "logical_not":
            yield from self._facts(self._opposite(condition.args[0]))
        elif condition.fn in _COMPARISONS:
            yield from self._compared(condition.fn, *condition.args)
            yield from self._shifted(condition.fn, *condition.args)

    def _compared(self, fn: str, a: Term, b: Term) -> Iterator[tuple[Expr, Range]]:
        """The ranges that a comparison gives to its operands."""
        gap = 0 if _has_floats((a, b)) else 1
        for part, range in zip((a, b), _COMPARISONS[fn](self.of(a), self.of(b), gap), strict=True):
            if isinstance(part, Expr):
                yield part, range

    def _shifted(self, fn: str, a: Term, b: Term) -> Iterator[tuple[Expr, Range]]:
        """The range that `a < end - start` gives to `start + a`."""
        if fn in ("less", "less_equal") and isinstance(b, Expr) and b.fn == "subtract":
            end, start = b.args
            for pair in ((start, a), (a, start)):
                total = self.kernel.node("add", pair, b.dtype)
                yield from self._compared(fn, total, end)


_RULES: Mapping[str, Callable[[IndexRanges, Expr], Range]] = {
    "index": IndexRanges.index,
    "loop": IndexRanges.loop,
    "load": IndexRanges.load,
    "add": IndexRanges.sum,
    "subtract": IndexRanges.sum,
    "multiply": IndexRanges.product,
    "negative": IndexRanges.negative,
    "index_div": IndexRanges.quotient,
    "floor_divide": IndexRanges.quotient,
    "index_mod": IndexRanges.remainder,
    "remainder": IndexRanges.remainder,
    "maximum": IndexRanges.maximum,
    "minimum": IndexRanges.minimum,
    "where": IndexRanges.choice,
    "astype": IndexRanges.cast,
    "ravel": IndexRanges.ravel,
    "order": IndexRanges.order,
    "below": IndexRanges.drawn,
    "reduce": IndexRanges.reduction,
}

_OPPOSITE = {
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
    "not_equal": "equal",
}


Compare: TypeAlias = "Callable[[Range, Range, int], tuple[Range, Range]]"
"""The ranges that a comparison gives to its operands; unequal integers differ by 1 at least."""


def _at_most(a: Range, b: Range, gap: int) -> tuple[Range, Range]:
    """The ranges that `a + gap <= b` gives to a and b."""
    high, low = tuple(end - gap for end in b.high), tuple(end + gap for end in a.low)
    return Range((), high), Range(low, ())


def _at_least(a: Range, b: Range, gap: int) -> tuple[Range, Range]:
    """The ranges that `a >= b + gap` gives to a and b."""
    second, first = _at_most(b, a, gap)
    return first, second


_COMPARISONS: Mapping[str, Compare] = {
    "less": _at_most,
    "less_equal": lambda a, b, _: _at_most(a, b, 0),
    "greater": _at_least,
    "greater_equal": lambda a, b, _: _at_least(a, b, 0),
    "equal": lambda a, b, _: (b, a),
}


def _has_floats(terms: Sequence[Term]) -> bool:
    return any(
        term.dtype.is_float if isinstance(term, Expr) else isinstance(term, float) for term in terms
    )


def _sides(range: Range) -> tuple[Ends, Ends]:
    return range.low, range.high


def _quotient(end: Size, divisor: Size) -> Size:
    """`end // divisor`; of the last index of whole multiples, the last multiple."""
    following = end + 1
    if isinstance(following, Dim) or isinstance(divisor, Dim):
        whole = following // divisor
        if whole * divisor == following:
            return whole - 1
    return end // divisor
