"""Index terms as sums: a constant, plus each symbol times a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import cast

from compiler.codegen.kernel.body import KernelBody, Source, size_of
from compiler.codegen.trace import Expr, Term
from compiler.ir.dims import Size, product
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Affine:
    """`constant` + Σ factor · symbol; a symbol is any expression, such as an axis's index."""

    constant: Size = 0
    factors: Mapping[Expr, Size] = field(default_factory=dict[Expr, Size])

    def __add__(self, other: Affine) -> Affine:
        symbols = {**self.factors, **other.factors}
        factors = {
            symbol: self.factors.get(symbol, 0) + other.factors.get(symbol, 0) for symbol in symbols
        }
        nonzero = {symbol: factor for symbol, factor in factors.items() if factor != 0}
        return Affine(self.constant + other.constant, nonzero)

    def times(self, size: Size) -> Affine:
        """The product with a size."""
        factors = {symbol: factor * size for symbol, factor in self.factors.items()}
        return Affine(self.constant * size, factors)


def affine(term: Term) -> Affine:
    """The sum that an index term is; what is not a sum is a symbol of its own."""
    size = size_of(term)
    if size is not None:
        return Affine(size)
    assert isinstance(term, Expr)
    if term.fn in ("add", "subtract"):
        a, b = map(affine, term.args)
        return a + (b if term.fn == "add" else b.times(-1))
    if term.fn == "multiply":
        a, b = map(affine, term.args)
        a, b = (b, a) if a.factors == {} else (a, b)
        if not b.factors:
            return a.times(b.constant)
    if term.fn == "ravel":
        return offset(term.args, cast(Shape, term.extra))
    return Affine(0, {term: 1})


def offset(indices: Sequence[Term], shape: Sequence[Size]) -> Affine:
    """The element's number in an array without gaps."""
    total = Affine()
    for axis, index in enumerate(indices):
        total += affine(index).times(product(shape[axis + 1 :]))
    return _joined(total)


def _joined(total: Affine) -> Affine:
    """Join the quotients and remainders of an index that was split and put together again.

    `(x // s) * (f * s) + (x % s) * f` is `x * f`.
    """
    for part, factor in total.factors.items():
        if part.fn == "index_mod" and (quotient := _quotient(part, factor, total)) is not None:
            rest = dict(total.factors)
            del rest[part], rest[quotient]
            return _joined(Affine(total.constant, rest) + affine(part.args[0]).times(factor))
    return total


def _quotient(part: Expr, factor: Size, total: Affine) -> Expr | None:
    """The quotient that belongs to a remainder, if it has the factor that joins them."""
    index, by = part.args[0], size_of(part.args[1])
    kernel = part.tracer
    if by is None or not isinstance(kernel, KernelBody):
        return None
    quotient = kernel.div(index, kernel.size(by))
    matches = isinstance(quotient, Expr) and total.factors.get(quotient, 0) == factor * by
    return cast(Expr, quotient) if matches else None


def strides(load: Expr, symbols: Sequence[Expr]) -> tuple[list[Size], Size] | None:
    """How far a load moves by each symbol, and its offset, in elements.

    None if it also moves by others, or has a condition, or its array has gaps.
    """
    source = cast(Source, load.extra)
    if len(load.args) != len(source.shape) or source.operand.region.is_strided:
        return None
    moved = offset(load.args, source.shape)
    if {*moved.factors} - {*symbols}:
        return None
    return [moved.factors.get(symbol, 0) for symbol in symbols], moved.constant
