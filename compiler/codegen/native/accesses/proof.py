"""What a kernel accesses lies within its operands: proved, compared at bind time, or tested.

A kernel states each load and store as an operand, the shape that it is viewed in, an index for each
axis, and a condition. The view must not have more elements than the operand. An index is within its
axis if its range says so. Otherwise, if it is made of indices of axes and loops alone, its end is
compared with the axis: now, if both are numbers, or when the module is bound to sizes. An index
that depends on numbers of arrays or has a condition gets one more condition: where it is outside
of its axis, nothing is loaded (`other` counts) or stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.analysis import needed
from compiler.codegen.kernel.body import KernelBody, Source, Store
from compiler.codegen.kernel.index_ranges import Facts, IndexRanges
from compiler.codegen.kernel.ranges import ANY, Range
from compiler.codegen.kernel.split_reductions import substitute
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.errors import ShapeError
from compiler.ir.dims import Dim, Quotient, Size, names_of, product
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass

_PURE = frozenset("index loop size add subtract multiply index_div index_mod ravel".split())
"""What an index is made of whose end is one that it has."""


@dataclass(frozen=True)
class SizeCheck:
    """An axis of an operand, and how many of its elements a kernel visits.

    With `whole`, all elements of an operand, and how many the shape has that it is read in.
    """

    operand: str
    visited: Size
    size: Size
    whole: bool = False

    @property
    def text(self) -> str:
        """What is wrong, as an f-string of the sizes."""
        return f"{self._what} has {{{self.size}}} elements, not {{{self.visited}}}"

    @property
    def _what(self) -> str:
        """What has the size."""
        return self.operand if self.whole else f"an axis of {self.operand}"

    @property
    def names(self) -> set[str]:
        """The names of open sizes in it."""
        return names_of(self.visited, self.size)

    @property
    def differs(self) -> bool:
        """True if both sizes are numbers, and not the same."""
        is_known = isinstance(self.visited, int) and isinstance(self.size, int)
        return is_known and self.visited != self.size

    def is_decided(self) -> bool:
        """True if it holds for all sizes. Raises ShapeError if it does for none."""
        if self.visited == self.size:
            return True
        if isinstance(self.visited, Dim) or isinstance(self.size, Dim):
            return False
        if self.visited > self.size:
            raise ShapeError(
                f"{self.visited} elements of {self._what} are needed, it has {self.size}"
            )
        return True


@dataclass(frozen=True)
class _Access:
    """A load or store of an element of a view, if a condition holds."""

    operand: NumpyOperand
    shape: Shape
    indices: tuple[Term, ...]
    where: Expr | None


def bounded(kernel: KernelBody, facts: Facts, varying: set[str]) -> list[SizeCheck]:
    """Bound all that a kernel accesses; returns the comparisons that are left, each once.

    Accesses that only numbers of arrays could prove get a condition in the kernel itself, and so do
    those by sizes with `varying` names, which no comparison outside of a loop could know.

    Raises ShapeError if an axis is known to have fewer elements than are visited.
    """
    proof = _Proof(IndexRanges(kernel, facts), varying)
    parts = all_parts(needed(kernel))
    for key in (cast(NumpyOperand, part.extra) for part in parts if part.fn == "key"):
        proof.compare(SizeCheck(key.name, 1, key.type.numel))
    of_loads = {load: proof.condition(_load(load)) for load in parts if load.fn == "load"}
    of_stores = [proof.condition(_store(store)) for store in kernel.stores]
    conditions = {load: what for load, what in of_loads.items() if what is not None}
    if conditions or any(condition is not None for condition in of_stores):
        _rewrite(kernel, conditions, of_stores)
    return list(dict.fromkeys(proof.checks))


def stored_numbers(kernel: KernelBody, facts: Facts) -> Iterator[tuple[str, Range, bool]]:
    """The integers that a kernel stores: the array, their range, and whether it stores all."""
    ranges = IndexRanges(kernel, facts)
    for store in kernel.stores:
        if not store.operand.type.dtype.is_float:
            numbers = ANY if store.atomic else ranges.of(store.value)
            yield store.operand.name, numbers, _stores_all(kernel, store)


def _stores_all(kernel: KernelBody, store: Store) -> bool:
    """True for a store to each element of an array."""
    has_all = store.where is None and kernel.shape == store.shape == store.operand.type.shape
    pairs = zip(store.indices, kernel.indices, strict=True) if has_all else ()
    return has_all and all(index is own for index, own in pairs)


def _load(part: Expr) -> _Access:
    source = cast(Source, part.extra)
    rank = len(source.shape)
    where = part.args[rank] if len(part.args) > rank else None
    return _Access(source.operand, source.shape, part.args[:rank], _condition(where))


def _store(store: Store) -> _Access:
    return _Access(store.operand, store.shape, store.indices, _condition(store.where))


class _Proof:
    """Proves accesses one by one, and collects the `checks` that are left."""

    def __init__(self, ranges: IndexRanges, varying: set[str]) -> None:
        self._ranges, self._varying = ranges, varying
        self.checks: list[SizeCheck] = []

    def condition(self, access: _Access) -> Term | None:
        """What must hold for an access to be within its operand; None if it always does."""
        name, size = access.operand.name, access.operand.type.numel
        self.compare(SizeCheck(name, product(access.shape), size, whole=True))
        ranges = self._ranges.where(access.where)
        conditions: list[Expr] = []
        for index, size in zip(access.indices, access.shape, strict=True):
            conditions += self._outside(access, ranges, index, size)
        return _all(self._ranges.kernel, conditions)

    def _outside(
        self, access: _Access, ranges: IndexRanges, index: Term, size: Size
    ) -> Iterator[Expr]:
        """The comparisons of an index with an axis that nothing proves."""
        range, at_most = ranges.of(index), self._ranges.facts.is_at_most
        is_natural = any(at_most(0, end) for end in range.low)
        if is_natural and any(at_most(end, size - 1) for end in range.high):
            return
        is_plain = access.where is None and is_natural and len(range.high) == 1 and _is_pure(index)
        if is_plain and self.compare(SizeCheck(access.operand.name, range.high[0] + 1, size)):
            return
        kernel = self._ranges.kernel
        if not is_natural:
            yield kernel.call("greater_equal", index, 0)
        yield kernel.call("less", index, kernel.size(size))

    def compare(self, check: SizeCheck) -> bool:
        """Keep a comparison for later if it is not decided; False if its sizes are not known."""
        if check.is_decided():
            return True
        if check.names & self._varying or _divides_by_names(check.visited):
            return False
        self.checks.append(check)
        return True


def _condition(where: Term | None) -> Expr | None:
    """A condition that depends on numbers; one that is always true is none."""
    return where if isinstance(where, Expr) else None


def _all(kernel: KernelBody, conditions: Sequence[Term | None]) -> Term | None:
    """The conjunction of conditions; None for none."""
    total: Term | None = None
    for condition in dict.fromkeys(filter(_condition, conditions)):
        total = condition if total is None else kernel.call("logical_and", total, condition)
    return total


def _is_pure(index: Term) -> bool:
    """True for an index made of axes, loops and sizes alone, each axis and loop once."""
    symbols: list[Expr] = []
    pending = [index] if isinstance(index, Expr) else []
    while pending:
        part = pending.pop()
        if part.fn not in _PURE:
            return False
        symbols += [part] if part.fn in ("index", "loop") else []
        pending += part.parts()
    return len(symbols) == len({*symbols})


def _divides_by_names(size: Size) -> bool:
    """True if a size is divided by another that is not a number, which may be zero."""
    atoms = () if isinstance(size, int) else (atom for atom, _ in size.terms for atom in atom)
    quotients = (atom for atom in atoms if isinstance(atom, Quotient))
    return any(
        len(quotient.operands) > 1 or _divides_by_names(quotient.numerator)
        for quotient in quotients
    )


def _rewrite(
    kernel: KernelBody, conditions: Mapping[Expr, Term], of_stores: Sequence[Term | None]
) -> None:
    """Give loads, and the stores in their order, one more condition each."""
    terms: dict[Expr, Term] = {}
    for load, condition in conditions.items():
        rank = len(cast(Source, load.extra).shape)
        *indices, where = [
            substitute(kernel, term, terms) for term in (*load.args[:rank], condition)
        ]
        other = 0
        if len(load.args) > rank:
            mask, other = (substitute(kernel, term, terms) for term in load.args[rank:])
            where = _all(kernel, [mask, where])
        terms[load] = kernel.node("load", (*indices, where, other), load.dtype, load.extra)
    kernel.ends = {
        loop: cast(Expr, substitute(kernel, end, terms)) for loop, end in kernel.ends.items()
    }
    kernel.stores = [
        _stored(kernel, store, condition, terms)
        for store, condition in zip(kernel.stores, of_stores, strict=True)
    ]


def _stored(
    kernel: KernelBody, store: Store, condition: Term | None, known: dict[Expr, Term]
) -> Store:
    indices = tuple(substitute(kernel, index, known) for index in store.indices)
    value = substitute(kernel, store.value, known)
    where = None if store.where is None else substitute(kernel, store.where, known)
    if condition is not None:
        inside = substitute(kernel, condition, known)
        where = _all(kernel, [where, inside])
    return replace(store, indices=indices, value=value, where=where)
