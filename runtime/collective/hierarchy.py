"""Hierarchical all-reduce: within groups of consecutive ranks, then between the groups.

If consecutive ranks share a machine, one rank of each machine communicates with the other machines.
(Paddle 1.8.5, `use_hierarchical_allreduce` of DistributeTranspiler.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.collective.groups.group import Work
from runtime.collective.ring import Ring, Stage, gloo_group


def make_hierarchy(ring: Ring, inner: int, check: Callable[[], None]) -> None:
    """Create the process groups of a ring for inner groups of `inner` consecutive ranks; the last
    may be smaller.
    """
    first = ring.rank - ring.rank % inner
    neighbours = list(range(first, min(first + inner, ring.size)))
    prefix = f"ring{ring.number}/inner{first}"
    if len(neighbours) > 1:
        ring.inner = gloo_group(ring.member, prefix, neighbours, check)
    if ring.rank == first:
        firsts = list(range(0, ring.size, inner))
        ring.outer = gloo_group(ring.member, f"ring{ring.number}/outer", firsts, check)
    ring.is_hierarchical = True


def hierarchical_stages(ring: Ring, value: Any, operation: str) -> list[Stage]:
    """Return the stages: reduce to the first rank of the inner group, all-reduce, broadcast
    back.
    """
    inner, outer = ring.inner, ring.outer
    stages: list[Stage] = []
    if inner is not None:
        stages.append(lambda: inner.reduce(value, operation, 0))
    if outer is not None:
        stages.append(lambda: outer.all_reduce(value, operation))
    if inner is not None:
        stages.append(lambda: inner.broadcast(value, 0))
    return stages


def copy_stage(target: Any, source: Any) -> Stage:
    """A stage that copies a staged result back."""

    def copy() -> Work | None:
        target.copy_(source)

    return copy
