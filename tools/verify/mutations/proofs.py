"""Decides whether a change of a kernel that was not noticed is harmless, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.ptx.errors import PtxError
from tools.ptx.instructions import Kernel
from tools.verify.mutations.effects import Change, Differences, Matters
from tools.verify.mutations.orders import Trace

SEEDS = (1, 2)
"""Seeds of random bits that replace what a change makes different."""

Run = Callable[[Any], Sequence[Any]]
"""Results of the module as it is, with a watcher of its launches."""


@dataclass(frozen=True)
class Place:
    """Where a module is changed: the kernel, and the line of the PTX."""

    kernel: Kernel
    line: int


def effect_reaches_nothing(place: Place, run: Run, change: Change) -> bool:
    """True if what a changed load or store makes different reaches no result, whatever it is."""
    wanted = run(None)
    try:
        results = [run(Differences(place.kernel, place.line, change, seed)) for seed in SEEDS]
    except (Matters, PtxError):
        return False
    return all(_same(wanted, result) for result in results)


def orders_nothing(place: Place, run: Run, kind: str) -> bool:
    """True if a barrier, or a wait for copies, that was removed orders no accesses."""
    trace = Trace(place.kernel)
    run(trace)
    check = trace.wait_is_for_nothing if kind == "wait removed" else trace.barrier_orders_nothing
    return check(place.line)


def are_equal(a: str, b: str, launches: Sequence[Mapping[str, bytes]]) -> bool:
    """True if two parameters are equal in all launches: the pointers of an op in place."""
    return all(launch[a] == launch[b] for launch in launches)


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(map(np.asarray, a), b, strict=True))
