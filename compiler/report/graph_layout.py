"""Where the ops of a graph stand in its picture: in layers, backward beside forward.

What trains is read in three lanes. Forward ops run down the first; their gradients run up the
second, each beside the op it belongs to, so that what forward saves for backward is a short way
across; updates of state run to the right in the third (`layers`). Within a lane the layers are
ordered by barycenters and put in place by isotonic regression, as Sugiyama, Tagawa and
Toda (1981) draw hierarchies; long edges keep a place in every layer they cross. All arithmetic is
on numbers in an order that depends on nothing but the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean
from typing import TypeAlias

from compiler.report.graph_layers import Edge, Lane, Layers, in_order, layers_of, neighbours

Place: TypeAlias = tuple[float, float]


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

AROUND = 12
"""Layers above and below that say where the middle of one should be."""

LONGEST = 60
"""Layers an edge may cross and still have a place in each; longer ones are drawn straight."""


LONERS = 12
"""More nodes than this that no line touches stand in a block of their own."""


def layout(lanes: Sequence[Lane], edges: Sequence[Edge], partners: Sequence[int | None]) -> Layout:
    """Place every node; node i is in `lanes[i]`, and beside its forward node `partners[i]`.

    Edges that would close a circle are let pass.
    """
    order = in_order(len(lanes), edges)
    rank = {node: index for index, node in enumerate(order)}
    forth = [(a, b) for a, b in edges if rank[a] < rank[b]]
    layers = layers_of(order, forth, lanes, partners)
    alone = _alone(order, edges)
    places: dict[int, Place] = {}
    ways: dict[Edge, tuple[Place, ...]] = {}
    spans: list[tuple[Lane, float, float]] = []
    for lane in Lane:
        mine = [node for node in order if lanes[node] == lane and node not in alone]
        if not mine:
            continue
        inside = [(a, b) for a, b in forth if lanes[a] == lanes[b] == lane]
        placed, passing = _lane(lane, mine, inside, layers)
        left = spans[-1][2] + GAP if spans else 0.0
        shift = left - min(x for x, _ in placed.values())
        places |= {node: (x + shift, y) for node, (x, y) in placed.items()}
        ways |= {e: tuple([(x + shift, y) for x, y in way]) for e, way in passing.items()}
        spans.append((lane, left, max(x + shift for x, _ in placed.values())))
    places |= _block(alone, max((y + 2 for _, y in places.values()), default=0.0))
    return Layout(tuple([places[node] for node in range(len(lanes))]), ways, tuple(spans))


def _alone(order: Sequence[int], edges: Sequence[Edge]) -> dict[int, None]:
    """The nodes that no edge touches, where they are many: what a startup program is made of."""
    touched = {node for edge in edges for node in edge}
    alone = [node for node in order if node not in touched]
    return dict.fromkeys(alone if len(alone) > LONERS else [])


def _block(nodes: Iterable[int], top: float) -> dict[int, Place]:
    """Nodes in rows, in order, about as wide as they are high on the screen."""
    listed = list(nodes)
    width = max(1, round(sqrt(len(listed) / 3)))
    return {n: (float(i % width), top + i // width) for i, n in enumerate(listed)}


def _lane(
    lane: Lane, nodes: Sequence[int], edges: Sequence[Edge], layers: Layers
) -> tuple[dict[int, Place], dict[Edge, tuple[Place, ...]]]:
    """The places of a lane's nodes, its left side anywhere, and the ways of its long edges."""
    if lane is Lane.UPDATE:
        return _chains(nodes, edges, {n: layers.tops[n] for n in nodes}), {}
    return _layered(nodes, edges, layers.rows)


def _chains(
    nodes: Sequence[int], edges: Sequence[Edge], wanted: Mapping[int, int]
) -> dict[int, Place]:
    """What hangs together as a row of its own to the right, near the row it wants."""
    before, after = neighbours(edges)
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
    above, below = neighbours([e if row[e[0]] < row[e[1]] else (e[1], e[0]) for e in links])
    columns = {node: float(i) for layer in layers.values() for i, node in enumerate(layer)}
    down = sorted(layers)
    for sweep in range(SWEEPS):
        near, towards = (above, down) if sweep % 2 == 0 else (below, down[::-1])
        for index in towards:
            _settle(layers[index], near, columns, width)
    for index in down:
        both = {n: [*above.get(n, ()), *below.get(n, ())] for n in layers[index]}
        _settle(layers[index], both, columns, width)
    return _upright(columns, [layers[index] for index in down])


def _upright(columns: Mapping[int, float], layers: Sequence[Sequence[int]]) -> dict[int, float]:
    """The same columns without what makes the whole lean: the middle of the layers around each."""
    middles = [fmean(columns[node] for node in layer) for layer in layers]
    sums = [0.0, *accumulate(middles)]
    found: dict[int, float] = {}
    for index, layer in enumerate(layers):
        first, stop = max(0, index - AROUND), min(len(layers), index + AROUND + 1)
        lean = (sums[stop] - sums[first]) / (stop - first)
        found |= {node: columns[node] - lean for node in layer}
    return found


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
