"""Layer assignment: the row of each op in the drawing of a graph.

A band is a group of rows that all lanes share: the length of an op's longest path from the start;
gradients are in the band of their forward op. It has as many rows as its longest chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate
from typing import TypeAlias

from compiler.support.dataclass import dataclass

Edge: TypeAlias = tuple[int, int]


class Lane(IntEnum):
    """Part of a training step that an op belongs to."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


@dataclass(frozen=True)
class Layers:
    """The row of each node, and the first row of its band."""

    rows: tuple[int, ...]
    tops: tuple[int, ...]


def layers_of(
    order: Sequence[int], edges: Sequence[Edge], lanes: Sequence[Lane],
    partners: Sequence[int | None],
) -> Layers:  # fmt: skip
    """Assign rows to nodes, given in topological order."""
    bands = _bands(order, edges, lanes, partners)
    depths = _depths(order, edges, lanes, bands)
    heights = [0] * (max(bands, default=0) + 1)
    for band, depth in zip(bands, depths, strict=True):
        heights[band] = max(heights[band], depth + 1)
    starts = [0, *accumulate(heights)]
    tops = tuple([starts[band] for band in bands])
    return Layers(tuple([top + d for top, d in zip(tops, depths, strict=True)]), tops)


def topological_order(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the nodes in topological order; cycles are broken at their first node."""
    after: dict[int, list[int]] = {}
    in_degree = [0] * count
    for a, b in edges:
        after.setdefault(a, []).append(b)
        in_degree[b] += 1
    ready = [node for node in reversed(range(count)) if not in_degree[node]]
    left = dict.fromkeys(range(count))
    order: list[int] = []
    while left:
        node = ready.pop() if ready else next(iter(left))
        if node not in left:
            continue
        del left[node]
        order.append(node)
        for follower in after.get(node, ()):
            in_degree[follower] -= 1
            if not in_degree[follower]:
                ready.append(follower)
    return order


def neighbours(edges: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the predecessors and the successors of each node."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for a, b in edges:
        before.setdefault(b, []).append(a)
        after.setdefault(a, []).append(b)
    return before, after


def _bands(
    order: Sequence[int], edges: Sequence[Edge], lanes: Sequence[Lane],
    partners: Sequence[int | None],
) -> list[int]:  # fmt: skip
    """Return the band of each node: its depth; for a gradient, the depth of its forward op."""
    before, after = neighbours(edges)
    bands = [0] * len(lanes)
    for node in (n for n in order if lanes[n] == Lane.FORWARD):
        bands[node] = max((bands[p] + 1 for p in before.get(node, ()) if not lanes[p]), default=0)
    for node in (n for n in reversed(order) if lanes[n] == Lane.FORWARD):
        own = [bands[f] - 1 for f in after.get(node, ()) if not lanes[f]]
        if not before.get(node) and own:
            bands[node] = max(bands[node], min(own))
    deepest = max(bands, default=0)
    for node in (n for n in order if lanes[n] == Lane.BACKWARD):
        earlier = [bands[p] for p in before.get(node, ()) if lanes[p] == Lane.BACKWARD]
        partner = partners[node]
        bands[node] = min([deepest if partner is None else bands[partner], *earlier])
    for node in (n for n in order if lanes[n] == Lane.UPDATE):
        bands[node] = max((bands[p] for p in before.get(node, ())), default=0)
    return bands


def _depths(
    order: Sequence[int], edges: Sequence[Edge], lanes: Sequence[Lane], bands: Sequence[int]
) -> list[int]:
    """Return the depth of each node within its lane and band; backward is drawn upwards."""
    inside = [(a, b) for a, b in edges if bands[a] == bands[b] and lanes[a] == lanes[b]]
    before, after = neighbours(inside)
    depths = [0] * len(lanes)
    for lane, nodes, above in (
        (Lane.FORWARD, order, before),
        (Lane.BACKWARD, reversed(order), after),
    ):
        for node in (n for n in nodes if lanes[n] == lane):
            depths[node] = max((depths[p] + 1 for p in above.get(node, ())), default=0)
    return depths
