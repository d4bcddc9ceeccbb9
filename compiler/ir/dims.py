"""Symbolic dims: exact integer expressions for sizes that are unknown at compile time.

A fluid shape may contain -1. To compile once for every batch size, the compiler needs `N`, `N*64`
or `(H - 2)//2 + 1` in its place, so that buffer sizes can be evaluated at bind time. A `Dim` is a
polynomial with integer coefficients over names and floor divisions, kept in one normal form, so
that equal expressions compare equal and print identically.

>>> N = Dim.named("N")
>>> print(N * 64 + 3, "|", (N * 64) // 16, "|", (N + 1) // 2)
64*N + 3 | 4*N | (N + 1)//2
>>> evaluate((N + 1) // 2, {"N": 7})
4
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import TypeAlias

from compiler.errors import ShapeError
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass
from compiler.support.limits import MAX_SIZE_DEPTH, MAX_SIZE_SYMBOLS
from compiler.support.syntax_trees import syntax_tree

Size: TypeAlias = "int | Dim"
"""One entry of a shape: a number or a symbolic expression."""


@dataclass(frozen=True)
class Quotient:
    """`numerator // denominator`, where it does not simplify to a polynomial."""

    numerator: Dim
    denominator: Size

    @property
    def operands(self) -> tuple[Dim, ...]:
        """The numerator, and the denominator if it is symbolic."""
        other = self.denominator
        return (self.numerator, other) if isinstance(other, Dim) else (self.numerator,)

    def __str__(self) -> str:
        return f"{_wrapped(self.numerator)}//{_wrapped(self.denominator)}"


Atom: TypeAlias = "str | Quotient"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True)
class Dim:
    """A symbolic size: a polynomial; `terms` maps sorted products of atoms to coefficients."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def named(name: str) -> Dim:
        """Return the symbol `name`; `?` is the unknown that makes every expression unknown."""
        return Dim((((name,), 1),))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The symbols needed to evaluate this size, sorted."""
        return tuple(sorted({name for monomial, _ in self.terms for name in _names(monomial)}))

    @cached_property
    def symbols(self) -> int:
        """The number of symbols, constants and quotients in the expression."""
        return sum(1 + sum(map(_symbols, monomial)) for monomial, _ in self.terms)

    @cached_property
    def depth(self) -> int:
        """The nesting depth of floor divisions."""
        return max((_depth(atom) for monomial, _ in self.terms for atom in monomial), default=0)

    @property
    def known(self) -> bool:
        """False if the expression involves an unknown: `?`, or a numbered one such as `?1`."""
        return not any(name.startswith("?") for name in self.names)

    @property
    def is_distinguishable(self) -> bool:
        """False if the expression involves `?`, which may denote several different sizes."""
        return "?" not in self.names

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int) and self.is_distinguishable:
            return self._plus(other)
        return _normal([*self.terms, *_terms(other)])

    def _plus(self, number: int) -> Dim:
        """Add a constant, which is the last term."""
        terms, last = self.terms, self.terms[-1]
        if not number:
            return self
        if last[0]:
            return _bounded(Dim((*terms, ((), number))))
        total = last[1] + number
        return Dim((*terms[:-1], ((), total)) if total else terms[:-1])

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            return self._scaled(other)
        if len(self.terms) * len(_terms(other)) > 2 * MAX_SIZE_SYMBOLS:
            raise _too_large(f"a product of {len(self.terms)} and {len(_terms(other))} terms")
        pairs = ((a, b) for a in self.terms for b in _terms(other))
        return _normal((_product(a[0], b[0]), a[1] * b[1]) for a, b in pairs)

    def _scaled(self, factor: int) -> Size:
        """Multiply by a constant, which keeps the order of terms."""
        if not self.is_distinguishable:
            return UNKNOWN
        return (
            Dim(tuple((monomial, number * factor) for monomial, number in self.terms))
            if factor
            else 0
        )

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __floordiv__(self, other: Size) -> Size:
        return _divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return _divide(Dim((((), other),)) if isinstance(other, int) else other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not self.known:
            return "?"
        text = " + ".join(_term_text(monomial, factor) for monomial, factor in self.terms)
        return text.replace("+ -", "- ")

    __repr__ = __str__


UNKNOWN = Dim.named("?")
"""An unknown size, -1 in a fluid shape. Every expression over it is unknown too."""


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Evaluate a size for given symbol values; KeyError if one is missing."""
    if isinstance(size, int):
        return size
    return sum(factor * _value(monomial, values) for monomial, factor in size.terms)


def solve(size: Size, number: int, known: Mapping[str, int]) -> dict[str, int]:
    """Solve `size == number` for the only symbol not in `known`; `{}` if that is impossible.

    Solves symbols with coefficient 1 only.

    >>> solve(Dim.named("M") + 1, 5, {}), solve(Dim.named("M") + 1, 5, {"M": 3})
    ({'M': 4}, {})
    """
    names = [] if isinstance(size, int) else [name for name in size.names if name not in known]
    rest = size - Dim.named(names[0]) if len(names) == 1 else size
    return {names[0]: number - rest} if names and isinstance(rest, int) else {}


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes; 1 for none."""
    number, total = 1, None
    for size in sizes:
        if isinstance(size, int):
            number *= size
        else:
            total = size if total is None else total * size
    return number if total is None else total * number


def names_of(*sizes: Size) -> set[str]:
    """Return the symbols in some sizes.

    >>> sorted(names_of(Dim.named("N") * 2, 3, Dim.named("M")))
    ['M', 'N']
    """
    return {name for size in sizes if isinstance(size, Dim) for name in size.names}


def is_multiple(size: Size, number: int) -> bool:
    """Return whether a size is a multiple of a number for all values of its symbols.

    >>> N = Dim.named("N")
    >>> is_multiple(N * 48, 16), is_multiple(N * 48 + 8, 16), is_multiple(0, 16)
    (True, False, True)
    """
    return divisor(size) % number == 0


def divisor(size: Size) -> int:
    """Return the largest number that divides a size for all values of its symbols; 0 for 0.

    >>> divisor(Dim.named("N") * 48 + 8), divisor(12)
    (8, 12)
    """
    return gcd(*(factor for _, factor in _terms(size)))


def renamed(size: Size, names: Mapping[str, str]) -> Size:
    """Rename the symbols of a size; those not in `names` stay.

    >>> print(renamed((Dim.named("N") + 1) // 2 * 4, {"N": "M"}))
    4*((M + 1)//2)
    """
    total: Size = 0
    for monomial, factor in _terms(size):
        total = total + product(_renamed(atom, names) for atom in monomial) * factor
    return total


def _renamed(atom: Atom, names: Mapping[str, str]) -> Size:
    if isinstance(atom, str):
        return Dim.named(names.get(atom, atom))
    return renamed(atom.numerator, names) // renamed(atom.denominator, names)


def parse_size(text: str) -> Size:
    """Parse a size: integers, names, `+ - * //`, parentheses, or `?`. Raises ValueError.

    >>> parse_size("(H - 1)//2 + 1") == (Dim.named("H") + 1) // 2
    True
    """
    if text.strip() == "?":
        return UNKNOWN
    try:
        return _from_ast(syntax_tree(text.strip(), "eval").body)
    except (SyntaxError, RecursionError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not a size") from error


_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


def _from_ast(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return Dim.named(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _from_ast(operand) * -1
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_from_ast(left), _from_ast(right))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not a size")


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), size),)


def _product(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=str))


def _normal(terms: Iterable[tuple[Monomial, int]]) -> Size:
    """Collect like terms; an int if no symbol remains, `?` if the unknown is involved."""
    collected: dict[Monomial, int] = {}
    for monomial, factor in terms:
        if "?" in monomial:
            return UNKNOWN
        collected[monomial] = collected.get(monomial, 0) + factor
    nonzero = [(monomial, factor) for monomial, factor in collected.items() if factor]
    if not any(monomial for monomial, _ in nonzero):
        return nonzero[0][1] if nonzero else 0
    if len(nonzero) > MAX_SIZE_SYMBOLS:
        raise _too_large(f"a sum of {len(nonzero)} terms")
    return _bounded(Dim(tuple(sorted(nonzero, key=_term_order))))


def _bounded(size: Dim) -> Dim:
    """Return the size; ShapeError if its expression exceeds the limits on symbols or depth."""
    if size.symbols > MAX_SIZE_SYMBOLS:
        raise _too_large(f"one of {size.symbols} symbols")
    if size.depth > MAX_SIZE_DEPTH:
        raise _too_large(f"one of {size.depth} nested floor divisions")
    return size


def _too_large(what: str) -> ShapeError:
    limits = f"{MAX_SIZE_SYMBOLS} symbols and {MAX_SIZE_DEPTH} nested floor divisions"
    return ShapeError(
        f"the expression of a size is larger than {limits}: {what}",
        hint="use numbers for sizes that are known",
    )


def _symbols(atom: Atom) -> int:
    return 1 if isinstance(atom, str) else 2 + sum(operand.symbols for operand in atom.operands)


def _depth(atom: Atom) -> int:
    return 0 if isinstance(atom, str) else 1 + max(operand.depth for operand in atom.operands)


def _term_order(term: tuple[Monomial, int]) -> tuple[int, str]:
    """Sort key of a term: longer products first, the constant last: 64*N*T + N + 3."""
    return (-len(term[0]), "*".join(map(str, term[0])))


def _divide(a: Size, b: Size) -> Size:
    if not (_is_distinguishable(a) and _is_distinguishable(b)):
        return UNKNOWN
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    exact = _divide_exactly(a, b)
    if exact is not None:
        return exact
    return _divide_partially(a, b) if isinstance(b, int) else _quotient_of(a, b)


def _divide_partially(a: Size, b: int) -> Size:
    """Divide out whole multiples, so that `(H - 1)//2 + 1` and `(H + 1)//2` are one expression."""
    whole = [
        (monomial, factor // b) for monomial, factor in _terms(a) if factor % b == 0 or not monomial
    ]
    rest = _normal(
        (monomial, factor if monomial else factor % b)
        for monomial, factor in _terms(a)
        if factor % b
    )
    return _normal(whole) + (rest // b if isinstance(rest, int) else _quotient_of(rest, b))


def _quotient_of(a: Size, b: Size) -> Size:
    numerator = a if isinstance(a, Dim) else Dim((((), a),))
    return _bounded(Dim((((Quotient(numerator, b),), 1),)))


def _divide_exactly(a: Size, b: Size) -> Size | None:
    """Divide term by term if `b` is one term that divides every term of `a`; else None."""
    divisor = _terms(b)
    if a == b:
        return 1
    if len(divisor) != 1:
        return None
    quotients = [_divide_term(term, divisor[0]) for term in _terms(a)]
    divided = [quotient for quotient in quotients if quotient is not None]
    return _normal(divided) if len(divided) == len(quotients) else None


def _divide_term(
    term: tuple[Monomial, int], divisor: tuple[Monomial, int]
) -> tuple[Monomial, int] | None:
    atoms = list(term[0])
    for atom in divisor[0]:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return None if term[1] % divisor[1] else (tuple(atoms), term[1] // divisor[1])


def _is_distinguishable(size: Size) -> bool:
    return isinstance(size, int) or size.is_distinguishable


def _value(monomial: Monomial, values: Mapping[str, int]) -> int:
    total = 1
    for atom in monomial:
        total *= values[atom] if isinstance(atom, str) else _quotient(atom, values)
    return total


def _quotient(atom: Quotient, values: Mapping[str, int]) -> int:
    return evaluate(atom.numerator, values) // evaluate(atom.denominator, values)


def _names(monomial: Monomial) -> Iterable[str]:
    for atom in monomial:
        if isinstance(atom, str):
            yield atom
        else:
            yield from atom.numerator.names
            yield from atom.denominator.names if isinstance(atom.denominator, Dim) else ()


def _term_text(monomial: Monomial, factor: int) -> str:
    if len(monomial) == 1 and factor == 1:
        return str(monomial[0])  # repeating nested quotients would make the text exponential
    atoms = [str(atom) if isinstance(atom, str) else f"({atom})" for atom in monomial]
    if not monomial or factor not in (1, -1):
        atoms.insert(0, str(factor))
    return ("-" if factor == -1 and monomial else "") + "*".join(atoms)


def _wrapped(size: Size) -> str:
    text = str(size)
    return text if text.isidentifier() or text.isdigit() else f"({text})"
