"""Known traces: the program of each, shared by traces that differ in sizes only.

The first trace of a sequence of ops is compiled for its own sizes. A second one with other sizes,
such as a smaller last batch, is written with open sizes where the two differ; all later ones run
the same program, and a new size compiles nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from compiler.support.dataclass import dataclass
from fluid.eager.trace_programs import Dims, OpEntry, RecordedTrace, TracePlan, dims_of, write

__all__ = ["Key", "count", "exact", "find", "make"]

MAX_PLANS = 512
"""Maximum number of known traces; past it all are dropped."""

Key: TypeAlias = tuple[object, ...]


@dataclass
class _Family:
    """The plan of traces that differ in sizes; `dims` has -1 where they do."""

    dims: Dims
    plan: TracePlan


_plans: dict[Key, TracePlan] = {}
_families: dict[Key, _Family] = {}


def count() -> int:
    """The number of programs of all known traces."""
    return len({id(plan) for plan in _plans.values()})


def find(key: Key) -> TracePlan | None:
    """Return the plan of a known trace."""
    return _plans.get(key)


def make(key: Key, recorded: RecordedTrace) -> TracePlan:
    """Return the plan of a trace that is not known yet, that of a similar one if possible."""
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
        _families.clear()
    dims = dims_of(recorded)
    family_key = _family_key(recorded)
    family = _families.get(family_key)
    merged = None if family is None else _merged(family.dims, dims, recorded)
    if family is None or merged is None:
        plan = write(recorded, dims)
        _families.setdefault(family_key, _Family(dims, plan))
    elif merged == family.dims:
        plan = family.plan
    else:
        plan = replace(write(recorded, merged), is_open=True)
        if plan.zeros:
            plan = write(recorded, dims)
        else:
            family.dims, family.plan = merged, plan
    _plans[key] = plan
    return plan


def exact(key: Key, recorded: RecordedTrace) -> TracePlan:
    """Return a plan for exactly these sizes, where one with open sizes does not compile."""
    plan = _plans[key] = write(recorded, dims_of(recorded))
    return plan


def _family_key(recorded: RecordedTrace) -> Key:
    """Return a key that is equal for traces that differ in sizes only."""
    entries = [_entry_key(entry) for entry in [*recorded.ghosts, *recorded.entries]]
    externals = [external for external, _ in recorded.externals]
    return (len(recorded.ghosts), *entries, *externals, *recorded.live)


def _entry_key(entry: object) -> object:
    if isinstance(entry, OpEntry):
        family = None if entry.signature is None else entry.signature.family
        return family, entry.inputs, entry.outputs, entry.stops
    return entry


def _merged(known: Dims, dims: Dims, recorded: RecordedTrace) -> Dims | None:
    """Return sizes with -1 where two traces differ; None if the size of state does."""
    states = {external.number for external, _ in recorded.externals if external.state_name}
    merged: dict[int, tuple[int, ...]] = {}
    for number, sizes in dims.items():
        before = known.get(number, sizes)
        if len(before) != len(sizes) or (number in states and before != sizes):
            return None
        pairs = zip(before, sizes, strict=True)
        merged[number] = tuple([size if size == other else -1 for other, size in pairs])
    return merged
