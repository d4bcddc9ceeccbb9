"""Where the ops of a graph stand in its picture: in layers, backward beside forward.

What trains is read in three lanes. Forward ops run down the first; their gradients run up the
second, each beside the op it belongs to, so that what forward saves for backward is a short way
across; updates of state run to the right in the third. A `band` is a row of layers that all lanes
share: an op's longest way from the start, gradients in the band of their op. Within a lane the
layers are ordered by barycenters and put in place by isotonic regression, as Sugiyama, Tagawa and
Toda (1981) draw hierarchies; long edges keep a place in every layer they cross. All arithmetic is
on numbers in an order that depends on nothing but the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TypeAlias

Edge: TypeAlias = tuple[int, int]
Place: TypeAlias = tuple[float, float]


class Lane(IntEnum):
    """Which part of a training step an op belongs to."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2


@dataclass(frozen=True)
class Layout:
    """Columns and rows of the nodes, the points that long edges pass, and where lanes begin.

    One unit is the width of a node with its gap, and the height of a node with its gap.
    """

    places: tuple[Place, ...]
    ways: Mapping[Edge, tuple[Place, ...]]
    lanes: tuple[tuple[Lane, float, float], ...]


GAP = 1.6
"""Columns between lanes."""

NARROW = 0.3
"""The width of a long edge where it crosses a layer, in columns."""

SWEEPS = 6
"""How often layers are put in order, down and up."""

LONGEST = 60
"""Layers an edge may cross and still have a place in each; longer ones are drawn straight."""


def layout(lanes: Sequence[Lane], edges: Sequence[Edge], partners: Sequence[int | None]) -> Layout:
    """Place every node; node i is in `lanes[i]`, and beside its forward node `partners[i]`.

    Edges that would close a circle are let pass.
    """
    order = _sorted(len(lanes), edges)
    rank = {node: index for index, node in enumerate(order)}
    forth = [(a, b) for a, b in edges if rank[a] < rank[b]]
    bands = _bands(order, forth, lanes, partners)
    rows, starts = _rows(order, forth, lanes, bands)
    places: dict[int, Place] = {}
    ways: dict[Edge, tuple[Place, ...]] = {}
    found: list[tuple[Lane, float, float]] = []
    left = 0.0
    for lane in Lane:
        mine = [node for node in order if lanes[node] == lane]
        if not mine:
            continue
        inside = [(a, b) for a, b in forth if lanes[a] == lanes[b] == lane]
        if lane is Lane.UPDATE:
            placed, passing = _chains(mine, inside, {n: starts[bands[n]] for n in mine}), {}
        else:
            placed, passing = _layered(mine, inside, rows)
        shift = left - min(x for x, _ in placed.values())
        places |= {node: (x + shift, y) for node, (x, y) in placed.items()}
        ways |= {e: tuple([(x + shift, y) for x, y in way]) for e, way in passing.items()}
        right = max(x + shift for x, _ in placed.values())
        found.append((lane, left, right))
        left = right + GAP
    return Layout(tuple([places[node] for node in range(len(lanes))]), ways, tuple(found))


def _sorted(count: int, edges: Sequence[Edge]) -> list[int]:
    """Every node behind those it follows; where there is a circle, the first of it goes ahead."""
    after: dict[int, list[int]] = {}
    waits = [0] * count
    for a, b in edges:
        after.setdefault(a, []).append(b)
        waits[b] += 1
    ready = [node for node in reversed(range(count)) if not waits[node]]
    left = dict.fromkeys(range(count))
    order: list[int] = []
    while left:
        node = ready.pop() if ready else next(iter(left))
        if node not in left:
            continue
        del left[node]
        order.append(node)
        for follower in after.get(node, ()):
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return order


def _neighbours(edges: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
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
    """The band of each node: how deep it stands, for a gradient how deep its op does."""
    before, after = _neighbours(edges)
    bands = [0] * len(lanes)
    for node in (n for n in order if lanes[n] == Lane.FORWARD):
        bands[node] = max((bands[p] + 1 for p in before.get(node, ()) if not lanes[p]), default=0)
    for node in (n for n in reversed(order) if lanes[n] == Lane.FORWARD):
        own = [bands[f] - 1 for f in after.get(node, ()) if not lanes[f]]
        if not before.get(node) and own:
            bands[node] = max(bands[node], min(own))
    deepest = max(bands, default=0)
    for node in (n for n in order if lanes[n] == Lane.BACKWARD):
        known = [bands[p] for p in before.get(node, ()) if lanes[p] == Lane.BACKWARD]
        partner = partners[node]
        bands[node] = min([deepest if partner is None else bands[partner], *known])
    for node in (n for n in order if lanes[n] == Lane.UPDATE):
        bands[node] = max((bands[p] for p in before.get(node, ())), default=0)
    return bands


def _rows(
    order: Sequence[int], edges: Sequence[Edge], lanes: Sequence[Lane], bands: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The row of each node, and the first row of each band: as many rows as its longest chain."""
    before, after = _neighbours([e for e in edges if bands[e[0]] == bands[e[1]]])
    depth = [0] * len(lanes)
    for lane, nodes, ahead in (
        (Lane.FORWARD, order, before),
        (Lane.BACKWARD, reversed(order), after),
    ):
        for node in (n for n in nodes if lanes[n] == lane):
            depth[node] = max((depth[p] + 1 for p in ahead.get(node, ()) if lanes[p] == lane),
                              default=0)  # fmt: skip
    heights = [0] * (max(bands, default=0) + 1)
    for node, band in enumerate(bands):
        heights[band] = max(heights[band], depth[node] + 1)
    starts = [0, *accumulate(heights[:-1])]
    return [starts[bands[node]] + depth[node] for node in range(len(lanes))], starts


def _chains(
    nodes: Sequence[int], edges: Sequence[Edge], wanted: Mapping[int, int]
) -> dict[int, Place]:
    """What hangs together as a row of its own to the right, near the row it wants."""
    before, after = _neighbours(edges)
    column: dict[int, int] = {}
    for node in nodes:
        column[node] = max((column[p] + 1 for p in before.get(node, ())), default=0)
    places: dict[int, Place] = {}
    bottom = 0
    for group in sorted(_groups(nodes, before, after), key=lambda g: max(wanted[n] for n in g)):
        top = max(bottom, max(wanted[node] for node in group))
        filled: dict[int, int] = {}
        for node in group:
            row = filled.get(column[node], top)
            places[node] = (float(column[node]), float(row))
            filled[column[node]] = row + 1
        bottom = max(filled.values())
    return places


def _groups(
    nodes: Sequence[int], before: Mapping[int, list[int]], after: Mapping[int, list[int]]
) -> list[list[int]]:
    """Nodes that hang together, in their order."""
    group: dict[int, int] = {}
    for first in nodes:
        waiting = [] if first in group else [first]
        while waiting:
            node = waiting.pop()
            if node not in group:
                group[node] = first
                waiting += [*before.get(node, ()), *after.get(node, ())]
    found: dict[int, list[int]] = {}
    for node in nodes:
        found.setdefault(group[node], []).append(node)
    return list(found.values())


# ---- one lane in layers -------------------------------------------------------------------------


def _layered(
    nodes: Sequence[int], edges: Sequence[Edge], rows: Sequence[int]
) -> tuple[dict[int, Place], dict[Edge, tuple[Place, ...]]]:
    """Columns for the nodes of a lane, and for long edges where they cross other layers."""
    row = {node: rows[node] for node in nodes}
    width = dict.fromkeys(nodes, 1.0)
    links: list[Edge] = []
    crossings: dict[Edge, list[int]] = {}
    fresh = -1
    for a, b in edges:
        step = 1 if row[a] < row[b] else -1
        between = list(range(row[a] + step, row[b], step))
        between = between if len(between) <= LONGEST else []
        passed = list(range(fresh, fresh - len(between), -1))
        fresh -= len(between)
        row |= dict(zip(passed, between, strict=True))
        width |= dict.fromkeys(passed, NARROW)
        crossings[a, b] = passed
        chain = [a, *passed, b]
        links += pairwise(chain)
    columns = _columns(row, width, links)
    places = {node: (columns[node], float(row[node])) for node in nodes}
    ways = {e: tuple([(columns[p], float(row[p])) for p in own]) for e, own in crossings.items()}
    return places, ways


def _columns(
    row: Mapping[int, int], width: Mapping[int, float], links: Sequence[Edge]
) -> dict[int, float]:
    """A column for everything that stands in a layer, close to what it is linked to."""
    layers: dict[int, list[int]] = {}
    for node in row:
        layers.setdefault(row[node], []).append(node)
    above, below = _neighbours([e if row[e[0]] < row[e[1]] else (e[1], e[0]) for e in links])
    columns = {node: float(i) for layer in layers.values() for i, node in enumerate(layer)}
    down = sorted(layers)
    for sweep in range(SWEEPS):
        near, towards = (above, down) if sweep % 2 == 0 else (below, down[::-1])
        for index in towards:
            _settle(layers[index], near, columns, width)
    for index in down:
        both = {n: [*above.get(n, ()), *below.get(n, ())] for n in layers[index]}
        _settle(layers[index], both, columns, width)
    return columns


def _settle(
    layer: list[int], near: Mapping[int, list[int]], columns: dict[int, float],
    width: Mapping[int, float],
) -> None:  # fmt: skip
    """Order a layer by where its nodes want to stand, and stand them there without overlap."""
    wish = {n: fmean(columns[p] for p in near[n]) if near.get(n) else columns[n] for n in layer}
    layer.sort(key=lambda node: (wish[node], columns[node], -node))
    columns |= zip(layer, spread([wish[n] for n in layer], [width[n] for n in layer]), strict=True)


def spread(wishes: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Places as near to the wishes as their order and their widths allow, by least squares.

    >>> spread([0.0, 0.0, 5.0], [1.0, 1.0, 1.0])
    [-0.5, 0.5, 5.0]
    """
    offsets = [0.0][: len(wishes)]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2)
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        block = (wish - offset, 1)
        while blocks and blocks[-1][0] > block[0]:
            (a, n), (b, m) = blocks.pop(), block
            block = ((a * n + b * m) / (n + m), n + m)
        blocks.append(block)
    means = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
