"""Drawings in the DOT language, built node by node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from compiler.support.escape import dot_string

__all__ = ["Edge", "Graph", "GraphPreviewGenerator", "Node", "Rank", "crepr"]


def crepr(v: object) -> str:
    """A value as DOT writes it: text in quotes, numbers as they are."""
    return dot_string(v) if isinstance(v, str) else str(v)


def _attributes(attrs: Mapping[str, object]) -> str:
    return ",".join(f"{key}={crepr(value)}" for key, value in attrs.items())


class Rank:
    """Nodes that are drawn on one line; groups of higher priority come later in the text."""

    def __init__(self, kind: str, name: str, priority: int) -> None:
        self.kind, self.name, self.priority = kind, name, priority
        self.nodes: list[Node] = []

    def __str__(self) -> str:
        names = ",".join(node.name for node in self.nodes)
        return f"{{rank={self.kind};{names}}}" if self.nodes else ""


class Node:
    """A node: its label, a unique name that begins with `prefix`, and attributes."""

    def __init__(self, label: str, name: str, description: str = "", **attrs: object) -> None:
        self.label, self.name, self.description, self.attrs = label, name, description, attrs

    def __str__(self) -> str:
        return f"{self.name} [{_attributes({'label': self.label, **self.attrs})}];"


class Edge:
    """An edge between two nodes, with attributes."""

    def __init__(self, source: Node, target: Node, **attrs: object) -> None:
        self.source, self.target, self.attrs = source, target, attrs

    def __str__(self) -> str:
        extra = f" [{_attributes(self.attrs)}]" if self.attrs else ""
        return f"{self.source.name} -> {self.target.name}{extra};"


class Graph:
    """A directed graph; `str` is its text, nodes and edges in the order they came."""

    def __init__(self, title: str, **attrs: object) -> None:
        self.title, self.attrs = title, attrs
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.rank_groups: dict[str, Rank] = {}
        self._numbers = count(1)

    def code(self) -> str:
        """The graph as text."""
        return str(self)

    def rank_group(self, kind: str, priority: int) -> str:
        """Make a group of nodes on one line; the name that `node` takes as `rank`."""
        name = f"rankgroup-{len(self.rank_groups)}"
        self.rank_groups[name] = Rank(kind, name, priority)
        return name

    def node(self, label: str, prefix: str, description: str = "", **attrs: object) -> Node:
        """Add a node."""
        rank = attrs.pop("rank", None)
        node = Node(label, f"{prefix}_{next(self._numbers)}", description, **attrs)
        if rank is not None:
            self.rank_groups[str(rank)].nodes.append(node)
        self.nodes.append(node)
        return node

    def edge(self, source: Node, target: Node, **attrs: object) -> Edge:
        """Add an edge."""
        edge = Edge(source, target, **attrs)
        self.edges.append(edge)
        return edge

    def compile(self, dot_path: str) -> str:
        """Write the text to a file; the path of the picture that `dot -Tpdf` makes of it."""
        Path(dot_path).write_text(f"{self}\n", encoding="utf-8")
        return str(Path(dot_path).with_suffix(".pdf"))

    show = compile

    def __str__(self) -> str:
        ranks = sorted(self.rank_groups.values(), key=lambda rank: rank.priority)
        title = {"label": self.title, **self.attrs}
        lines = [f"{key}={crepr(value)};" for key, value in title.items()]
        lines += [text for text in map(str, [*ranks, *self.nodes, *self.edges]) if text]
        return "\n".join(["digraph G {", *lines, "}"])


class GraphPreviewGenerator:
    """A graph of ops, parameters and other variables, each in its own colour."""

    def __init__(self, title: str) -> None:
        self.graph = Graph(title, layout="dot", concentrate="true", rankdir="TB")

    def __call__(self, path: str = "temp.dot", show: bool = False) -> str:
        """Write the text to a file; the path of the picture that `dot -Tpdf` makes of it."""
        return self.graph.compile(path)

    def add_param(self, name: str, data_type: object, highlight: bool = False) -> Node:
        """Add a parameter with its element type."""
        label = f"{name}\n{data_type}"
        return self._node(label, "param", name, "#148b97", highlight)

    def add_op(self, opType: str, **kwargs: object) -> Node:
        """Add an op."""
        return self._node(opType, "op", opType, "#303A3A", bool(kwargs.pop("highlight", False)))

    def add_arg(self, name: str, highlight: bool = False) -> Node:
        """Add a variable that is no parameter."""
        return self._node(name, "arg", name, "#dddddd", highlight)

    def _node(self, label: str, prefix: str, name: str, color: str, highlight: bool) -> Node:
        style = {"shape": "box", "style": "rounded,filled", "fontname": "Arial"}
        color = "orange" if highlight else color
        return self.graph.node(label, prefix, name, color=color, **style)

    def add_edge(self, source: Node, target: Node, **kwargs: object) -> Edge:
        """Add an edge."""
        color = "orange" if kwargs.pop("highlight", False) else "#000000"
        return self.graph.edge(source, target, color=color, **kwargs)
