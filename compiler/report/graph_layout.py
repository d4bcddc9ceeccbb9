"""Layered graph layout with three lanes: forward, backward and updates.

Forward ops run down the first lane; their gradients run up the second, each next to its forward op,
so that edges of saved activations are short; updates of state run to the right in the third
(`graph_layers`). Within a lane, layers are ordered by barycenters and positioned by isotonic
regression, following Sugiyama, Tagawa and Toda (1981); long edges occupy a position in every layer
they cross. The result is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean
from typing import TypeAlias

from compiler.report.graph_layers import (
    Edge,
    Lane,
    Layers,
    layers_of,
    neighbours,
    topological_order,
)
from compiler.support.dataclass import dataclass

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class GraphLayout:
    """Coordinates of the nodes, waypoints of long edges, and extents of the lanes.

    One unit is the width (or height) of a node with its gap.
    """

    points: tuple[Point, ...]
    waypoints: Mapping[Edge, tuple[Point, ...]]
    lanes: tuple[tuple[Lane, float, float], ...]


GAP = 1.6
"""Columns between lanes."""

NARROW = 0.3
"""Width of a long edge where it crosses a layer, in columns."""

SWEEPS = 6
"""Number of ordering sweeps, alternately down and up."""

DRIFT_WINDOW = 12
"""Layers above and below over which the centre of a layer is averaged."""

LONGEST = 60
"""Maximum layers an edge may cross with waypoints; longer ones are drawn straight."""


MAX_LONERS = 12
"""If more nodes than this have no edges, they are drawn in a separate block."""


def layout(
    lanes: Sequence[Lane], edges: Sequence[Edge], partners: Sequence[int | None]
) -> GraphLayout:
    """Lay out every node; node i is in `lanes[i]`, next to its forward node `partners[i]`.

    Edges that would close a cycle are ignored.
    """
    order = topological_order(len(lanes), edges)
    rank = {node: index for index, node in enumerate(order)}
    forth = [(a, b) for a, b in edges if rank[a] < rank[b]]
    layers = layers_of(order, forth, lanes, partners)
    isolated = _isolated_nodes(order, edges)
    points: dict[int, Point] = {}
    waypoints: dict[Edge, tuple[Point, ...]] = {}
    spans: list[tuple[Lane, float, float]] = []
    for lane in Lane:
        members = [node for node in order if lanes[node] == lane and node not in isolated]
        if not members:
            continue
        inside = [(a, b) for a, b in forth if lanes[a] == lanes[b] == lane]
        placed, passing = _lane(lane, members, inside, layers)
        left = spans[-1][2] + GAP if spans else 0.0
        shift = left - min(x for x, _ in placed.values())
        points |= {node: (x + shift, y) for node, (x, y) in placed.items()}
        waypoints |= {
            e: tuple([(x + shift, y) for x, y in waypoint]) for e, waypoint in passing.items()
        }
        spans.append((lane, left, max(x + shift for x, _ in placed.values())))
    points |= _grid(isolated, max((y + 2 for _, y in points.values()), default=0.0))
    return GraphLayout(tuple([points[node] for node in range(len(lanes))]), waypoints, tuple(spans))


def _isolated_nodes(order: Sequence[int], edges: Sequence[Edge]) -> dict[int, None]:
    """Return the nodes without edges, if there are many, as in a startup program."""
    touched = {node for edge in edges for node in edge}
    isolated = [node for node in order if node not in touched]
    return dict.fromkeys(isolated if len(isolated) > MAX_LONERS else [])


def _grid(nodes: Iterable[int], top: float) -> dict[int, Point]:
    """Arrange nodes in rows, in order, as an approximately square block on the screen."""
    listed = list(nodes)
    width = max(1, round(sqrt(len(listed) / 3)))
    return {n: (float(i % width), top + i // width) for i, n in enumerate(listed)}


def _lane(
    lane: Lane, nodes: Sequence[int], edges: Sequence[Edge], layers: Layers
) -> tuple[dict[int, Point], dict[Edge, tuple[Point, ...]]]:
    """Lay out one lane, up to a horizontal shift: node coordinates and waypoints of long edges."""
    if lane is Lane.UPDATE:
        return _component_rows(nodes, edges, {n: layers.tops[n] for n in nodes}), {}
    return _layered(nodes, edges, layers.rows)


def _component_rows(
    nodes: Sequence[int], edges: Sequence[Edge], wanted: Mapping[int, int]
) -> dict[int, Point]:
    """Lay out each connected component as a row to the right, near its wanted row."""
    before, after = neighbours(edges)
    column: dict[int, int] = {}
    for node in nodes:
        column[node] = max((column[p] + 1 for p in before.get(node, ())), default=0)
    points: dict[int, Point] = {}
    bottom = 0
    for group in sorted(_components(nodes, before, after), key=lambda g: max(wanted[n] for n in g)):
        top = max(bottom, max(wanted[node] for node in group))
        filled: dict[int, int] = {}
        for node in group:
            row = filled.get(column[node], top)
            points[node] = (float(column[node]), float(row))
            filled[column[node]] = row + 1
        bottom = max(filled.values())
    return points


def _components(
    nodes: Sequence[int], before: Mapping[int, list[int]], after: Mapping[int, list[int]]
) -> list[list[int]]:
    """Return the connected components, in order."""
    group: dict[int, int] = {}
    for first in nodes:
        waiting = [] if first in group else [first]
        while waiting:
            node = waiting.pop()
            if node not in group:
                group[node] = first
                waiting += [*before.get(node, ()), *after.get(node, ())]
    components: dict[int, list[int]] = {}
    for node in nodes:
        components.setdefault(group[node], []).append(node)
    return list(components.values())


# ---- one lane in layers -------------------------------------------------------------------------


def _layered(
    nodes: Sequence[int], edges: Sequence[Edge], rows: Sequence[int]
) -> tuple[dict[int, Point], dict[Edge, tuple[Point, ...]]]:
    """Assign columns to the nodes of a lane, and to long edges in the layers they cross."""
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
    points = {node: (columns[node], float(row[node])) for node in nodes}
    waypoints = {
        e: tuple([(columns[p], float(row[p])) for p in own]) for e, own in crossings.items()
    }
    return points, waypoints


def _columns(
    row: Mapping[int, int], width: Mapping[int, float], links: Sequence[Edge]
) -> dict[int, float]:
    """Return a column for every node and waypoint, close to its neighbours."""
    layers: dict[int, list[int]] = {}
    for node in row:
        layers.setdefault(row[node], []).append(node)
    above, below = neighbours([e if row[e[0]] < row[e[1]] else (e[1], e[0]) for e in links])
    columns = {node: float(i) for layer in layers.values() for i, node in enumerate(layer)}
    down = sorted(layers)
    for sweep in range(SWEEPS):
        near, towards = (above, down) if sweep % 2 == 0 else (below, down[::-1])
        for index in towards:
            _position_layer(layers[index], near, columns, width)
    for index in down:
        both = {n: [*above.get(n, ()), *below.get(n, ())] for n in layers[index]}
        _position_layer(layers[index], both, columns, width)
    return _without_drift(columns, [layers[index] for index in down])


def _without_drift(
    columns: Mapping[int, float], layers: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Subtract the moving average of the layers' centres, so that the drawing does not drift."""
    middles = [fmean(columns[node] for node in layer) for layer in layers]
    sums = [0.0, *accumulate(middles)]
    centred: dict[int, float] = {}
    for index, layer in enumerate(layers):
        first, stop = max(0, index - DRIFT_WINDOW), min(len(layers), index + DRIFT_WINDOW + 1)
        lean = (sums[stop] - sums[first]) / (stop - first)
        centred |= {node: columns[node] - lean for node in layer}
    return centred


def _position_layer(
    layer: list[int], near: Mapping[int, list[int]], columns: dict[int, float],
    width: Mapping[int, float],
) -> None:  # fmt: skip
    """Sort a layer by the mean column of its neighbours, and position it without overlap."""
    target = {n: fmean(columns[p] for p in near[n]) if near.get(n) else columns[n] for n in layer}
    layer.sort(key=lambda node: (target[node], columns[node], -node))
    columns |= zip(
        layer, spread([target[n] for n in layer], [width[n] for n in layer]), strict=True
    )


def spread(targets: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Return the positions closest to the targets (least squares) that keep order and widths.

    >>> spread([0.0, 0.0, 5.0], [1.0, 1.0, 1.0])
    [-0.5, 0.5, 5.0]
    """
    offsets = [0.0][: len(targets)]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2)
    blocks: list[tuple[float, int]] = []
    for target, offset in zip(targets, offsets, strict=True):
        block = (target - offset, 1)
        while blocks and blocks[-1][0] > block[0]:
            (a, n), (b, m) = blocks.pop(), block
            block = ((a * n + b * m) / (n + m), n + m)
        blocks.append(block)
    means = [mean for mean, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
