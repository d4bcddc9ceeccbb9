"""The check of fact STORED: values that are live at the same time do not overlap in memory.

An op writes memory for an output, except where the output is already in place, as a view of another
value (`written`). Every other value that is live at that step must be disjoint from the written
bytes, or be read for the last time by the writing kernel, which may then reuse its memory
(`InPlaceRules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

from compiler.ir.analysis.liveness import InPlaceRules, kernels, lives, supports_strided_rows
from compiler.ir.analysis.memory_writes import Aliases
from compiler.ir.analysis.region_index import RegionIndex
from compiler.ir.analysis.verifier import broken
from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.region import are_disjoint, at_most, end

Lives = Mapping[Var, tuple[int, int]]


def check_stored(g: Graph) -> None:
    """Check STORED: every live value of known size has a slot that no other live value overlaps.

    Raises VerifyError for the first var that violates it.
    """
    alive = lives(g)
    regions: dict[int, RegionIndex[Var]] = {}
    for var in g.vars():
        _check_var(g, var, var in alive)
        if var.slot is not None:
            regions.setdefault(var.slot, RegionIndex()).add(var, var.type, var.region)
    for vars in regions.values():
        _check_sizes(g, vars)
    for step, ops in enumerate(kernels(g)):
        rules = InPlaceRules(ops, alive)
        for op in ops:
            aliases = Aliases(op)
            for var in (var for var in op.writes() if var.slot is not None):
                others = regions[var.slot] if var.slot is not None else RegionIndex[Var]()
                other = next(clashes(rules, op, aliases, var, others, alive, step), None)
                if other is not None:
                    what = f"slot {var.slot} holds {other.label!r} and {var.label!r}"
                    raise broken("STORED", f"{what}, which live at once", op)


def clashes(
    rules: InPlaceRules, op: Op, aliases: Aliases[Var], var: Var, others: RegionIndex[Var],
    alive: Lives, step: int,
) -> Iterator[Var]:  # fmt: skip
    """Yield the vars of `others` (in the same slot) that are overwritten while live, if `op`, of
    the kernel that has these rules, writes `var` at `step`.

    What a later op of the kernel writes is not live yet: whether that op overwrites `var`, or has
    `var` itself as a view, is decided where it writes.
    """
    regions = aliases.written(var)
    if not regions:
        return
    same_bytes = {var, *aliases.linked(var)}
    later = rules.written_after(op)
    near = (neighbour for region in regions for neighbour in others.near(var.type, region))
    for other in dict.fromkeys(near):
        start, stop = alive[other]
        same = other in same_bytes or other.storage is var.storage
        if same or other in later or not start <= step < stop:
            continue
        if all(are_disjoint(var.type, region, other.type, other.region) for region in regions):
            continue
        is_last_read = start < step == stop - 1 and other.region == var.region
        if not (is_last_read and _may_take_over(rules, other, var)):
            yield other


def _may_take_over(rules: InPlaceRules, old: Var, new: Var) -> bool:
    return old.type.nbytes == new.type.nbytes and rules.allow(old, new)


def _check_var(g: Graph, var: Var, needs_memory: bool) -> None:
    what, producer = f"{var.role} {var.label!r}", g.producer(var)
    if var.slot is not None and not needs_memory:
        raise broken("STORED", f"{what} has a slot, but needs none", producer)
    if var.slot is None and needs_memory and not var.type.is_open:
        raise broken("STORED", f"{what} needs memory, but has no slot", producer)
    if needs_memory and var.overwrites is not None and not _same_memory(var, var.overwrites):
        raise broken("STORED", f"{what} is not in the slot of what it overwrites", producer)
    if var.region.is_strided and not supports_strided_rows(g, var, var.region):
        raise broken(
            "STORED", f"{what} is strided, which one of its ops does not support", producer
        )


def _check_sizes(g: Graph, vars: Iterable[Var]) -> None:
    """Check that one var of a slot has the largest end offset for all sizes."""
    largest = reduce(_larger, vars)
    for var in vars:
        if not at_most(_end(var), _end(largest)):
            what = f"slot {var.slot} holds {largest.label!r} and {var.label!r}"
            sizes = f"up to byte {_end(largest)} and {_end(var)}: either may be larger"
            raise broken("STORED", f"{what}, {sizes}", g.producer(var))


def _larger(a: Var, b: Var) -> Var:
    return b if at_most(_end(a), _end(b)) else a


def _end(var: Var) -> Size:
    return end(var.type, var.region)


def _same_memory(a: Var, b: Var) -> bool:
    return (a.slot, a.region) == (b.slot, b.region)
