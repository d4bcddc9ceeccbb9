"""Rewrites of a kernel's expressions to fewer kinds of reductions.

A mean and variance become sums: the count, the mean, and the squares of deviations from the mean,
which take a second pass (T. Chan, G. Golub and R. LeVeque, "Algorithms for computing the sample
variance", 1983). A matrix product becomes the sum of products over one loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from compiler.codegen.kernel.analysis import needed, store_roots
from compiler.codegen.kernel.body import KernelBody, Store, number_of
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.ir.types import DType

_SPECIAL = frozenset({"moment", "dot"})


def simplified(kernel: KernelBody) -> tuple[list[Store], dict[int, Expr]]:
    """The stores of a kernel and the ends of its loops, with simpler reductions."""
    parts = all_parts(needed(kernel))
    if not any(part.fn in _SPECIAL for part in parts):
        return kernel.stores, kernel.ends
    terms: dict[Expr, Term] = {}
    for part in parts:
        terms[part] = _rebuilt(kernel, part, terms)
    return [_with(store, terms) for store in kernel.stores], kernel.ends


def _with(store: Store, known: dict[Expr, Term]) -> Store:
    def found(term: Term) -> Any:
        return known[term] if isinstance(term, Expr) else term

    where = None if store.where is None else found(store.where)
    indices = tuple(map(found, store.indices))
    return replace(store, indices=indices, value=found(store.value), where=where)


def _rebuilt(kernel: KernelBody, part: Expr, known: dict[Expr, Term]) -> Term:
    args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in part.args)
    if part.fn == "moment":
        return _moment(kernel, part, known)
    if part.fn == "dot":
        return _dot(kernel, part, cast("Sequence[Expr]", args))
    if all(a is b for a, b in zip(args, part.args, strict=True)):
        return part
    return kernel.node(part.fn, args, part.dtype, part.extra)


def _dot(kernel: KernelBody, part: Expr, factors: Sequence[Expr]) -> Expr:
    """The sum of products over the first loop; the second is the same."""
    a, b = (factor.tracer.cast(factor, part.dtype) for factor in factors)
    return kernel.sum(a * b, kernel.node("loop", (), DType.INT64, 0))


def _moment(kernel: KernelBody, part: Expr, known: dict[Expr, Term]) -> Term:
    """The count, mean or sum of squared deviations of a reduction."""
    moments = part.parts()[0]
    value, over, *guard = (known[a] if isinstance(a, Expr) else a for a in moments.args)
    value, over = cast(Expr, value), cast(Expr, over)
    where = guard[0] if guard else None

    def total(term: Term) -> Expr:
        return kernel.sum(term if where is None else kernel.where(where, term, 0), over)

    ones = kernel.node("full", (1.0,), value.dtype)
    counted = where is not None or kernel.split_size is not None or number_of(over) in kernel.ends
    size = kernel.size(kernel.loops[number_of(over)])
    fixed = size.astype(value.dtype) if isinstance(size, Expr) else float(size)
    count: Any = total(ones) if counted else fixed
    if number_of(part) == 0:
        return count if isinstance(count, Expr) else kernel.node("full", (count,), value.dtype)
    least = max(count, 1.0) if isinstance(count, float) else kernel.maximum(count, 1.0)
    mean = total(value) / least
    if number_of(part) == 1:
        return mean
    away = value - mean
    return total(away * away)


def parts_of(stores: Iterable[Store], ends: dict[int, Expr]) -> list[Expr]:
    """All expressions of stores and ends, operands first."""
    return all_parts([*ends.values(), *store_roots(stores)])
