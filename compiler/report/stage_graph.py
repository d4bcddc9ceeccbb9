"""One drawing for all stages of a graph, in which every op has a fixed position.

A pass removes nodes and adds others; the remaining ones keep their positions, so that stepping
through the passes shows only the changes. Parameters are not nodes (an op lists them), nor are
deletions: they belong to the preceding op.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from compiler.ir.program import OpRole
from compiler.record import OpNote, Stage
from compiler.report.changes import key
from compiler.report.graph_layers import Lane
from compiler.report.graph_layout import GraphLayout, layout
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

UNDRAWN = -1
"""Index for an op that has no node."""

HUB = 8
"""A small value with more readers than this (a learning rate) does not affect the layout."""

SMALL = 64
"""Maximum bytes of a small value; one with data-dependent size is not small."""


@dataclass(frozen=True)
class Node:
    """A feed, or an op of some stages, in its latest form.

    An op without a role is in the lane of its inputs' producers, or else of its readers.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str
    lane: Lane


@dataclass(frozen=True)
class Link:
    """A value passed from node `start` to node `stop`, in the stages with indices `stages`.

    `hub` is true if so many ops read the value that the edge is uninformative.
    """

    start: int
    stop: int
    label: str
    stages: tuple[int, ...]
    hub: bool


@dataclass(frozen=True)
class Drawing:
    """Nodes with their layout, links, and for each stage the node of each op in order."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    orders: tuple[tuple[int, ...], ...]
    layout: GraphLayout

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """The first node that computes each value."""
        pairs = enumerate(self.nodes)
        return {label: i for i, node in reversed(list(pairs)) for label in node.outputs}

    def node_of(self, outputs: Sequence[str]) -> int:
        """Return the node of the op that writes these values, or `UNDRAWN`."""
        return self.makers.get(outputs[0], UNDRAWN) if outputs else UNDRAWN


def draw_stages(stages: Sequence[Stage]) -> Drawing:
    """Return the drawing of a graph in all its stages."""
    builder = _Builder()
    orders = tuple([tuple(builder.add(index, stage)) for index, stage in enumerate(stages)])
    nodes = tuple(builder.nodes)
    edges = list(dict.fromkeys((link.start, link.stop) for link in builder.links() if not link.hub))
    placed = layout([node.lane for node in nodes], edges, _partners(nodes))
    return Drawing(nodes, tuple(builder.links()), orders, placed)


class _Builder:
    """Builder that collects nodes and links stage by stage."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[Hashable, int] = {}
        self._seen: dict[tuple[int, int, str], list[int]] = {}
        self._readers: dict[str, set[int]] = {}
        self._small: set[str] = set()

    def add(self, index: int, stage: Stage) -> Iterator[int]:
        """Yield the node of each op of a stage."""
        makers: dict[str, int] = {}
        sizes = ((label, var.nbytes) for label, var in stage.vars.items())
        self._small |= {label for label, n in sizes if isinstance(n, int) and n <= SMALL}
        for var in (var for var in stage.vars.values() if var.role == "feed"):
            feed = Node("feed", (), (var.label,), "", Lane.FORWARD)
            makers[var.label] = self._node(("feed", var.label), feed)
        numbers = self._numbers(stage)
        pairs = list(zip(stage.ops, numbers, strict=True))
        makers |= {label: node for op, node in pairs for label in op.outputs}
        for op, node in pairs:
            for label in op.inputs if node != UNDRAWN else ():
                if makers.get(label, node) != node:
                    self._link(index, makers[label], node, label)
        yield from numbers

    def _numbers(self, stage: Stage) -> list[int]:
        counts: dict[Hashable, int] = {}
        numbers: list[int] = []
        lanes: dict[str, Lane] = {}
        reader_lanes = _reader_lanes(stage)
        for op in stage.ops:
            name = key(op)
            counts[name] = counts.get(name, -1) + 1
            if op.kind == "delete_var":
                numbers.append(UNDRAWN)
                continue
            input_lanes = [lanes[label] for label in op.inputs if label in lanes]
            lane = _lane(
                op,
                input_lanes
                or [reader_lanes[label] for label in op.outputs if label in reader_lanes],
            )
            lanes |= dict.fromkeys(op.outputs, lane)
            node = Node(op.kind, op.inputs, op.outputs, op.source, lane)
            numbers.append(self._node((name, counts[name]), node))
        return numbers

    def _node(self, name: Hashable, node: Node) -> int:
        number = self._known.setdefault(name, len(self.nodes))
        self.nodes[number : number + 1] = [node]
        return number

    def _link(self, index: int, start: int, stop: int, label: str) -> None:
        indices = self._seen.setdefault((start, stop, label), [])
        if index not in indices[-1:]:
            indices.append(index)
        self._readers.setdefault(label, set()).add(stop)

    def links(self) -> Iterator[Link]:
        """Yield every link, in order of first occurrence."""
        for (start, stop, label), stages in self._seen.items():
            hub = label in self._small and len(self._readers[label]) > HUB
            yield Link(start, stop, label, tuple(stages), hub)


def _reader_lanes(stage: Stage) -> dict[str, Lane]:
    """Return the lane of the first reader of each value, among those with a role."""
    lanes: dict[str, Lane] = {}
    for op in (op for op in reversed(stage.ops) if op.role is not None):
        lanes |= dict.fromkeys(op.inputs, _lane(op, ()))
    return lanes


def _lane(op: OpNote, around: Iterable[Lane]) -> Lane:
    """Return the lane of an op; without a role, the last of the lanes around it."""
    if op.role is None:
        return max(around, default=Lane.FORWARD)
    if op.role & (OpRole.OPTIMIZE | OpRole.LRSCHED):
        return Lane.UPDATE
    return Lane.BACKWARD if op.role & OpRole.BACKWARD else Lane.FORWARD


def _partners(nodes: Sequence[Node]) -> list[int | None]:
    """Return the forward node of each gradient: the producer of the differentiated value."""
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if node.lane is Lane.FORWARD:
            makers |= {_base(label): number for label in node.outputs}
    return [_partner(node, makers) if node.lane is Lane.BACKWARD else None for node in nodes]


def _partner(node: Node, makers: Mapping[str, int]) -> int | None:
    for labels in (node.inputs, node.outputs):
        gradients = (_base(label) for label in labels if "@GRAD" in label)
        if partners := [makers[name] for name in gradients if name in makers]:
            return max(partners)
    return None


def _base(label: str) -> str:
    """Return the variable of a gradient or of a later version.

    >>> _base("x@GRAD@RENAME@0"), _base("x#1")
    ('x', 'x')
    """
    return label.partition("@GRAD")[0].partition("#")[0]
