"""Drawings of graphs in the DOT language."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from compiler.support.escape import dot_string
from fluid.compat.graphs.nodes import Node

__all__ = ["write_dot"]


def write_dot(nodes: Sequence[Node], marked: Collection[int], path: Path) -> None:
    """Write nodes and the edges between them to a file; `marked` nodes are yellow."""
    lines = ["digraph G {", *_nodes(nodes, marked), *_edges(nodes), "}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _nodes(nodes: Sequence[Node], marked: Collection[int]) -> Iterator[str]:
    for node in nodes:
        shape, color = ("box", "#303A3A") if node.is_op() else ("ellipse", "#dddddd")
        color = "yellow" if node.id() in marked else color
        label = dot_string(node.name())
        yield f'  node_{node.id()} [label={label}, shape={shape}, color="{color}"];'


def _edges(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        yield from (f"  node_{node.id()} -> node_{other.id()};" for other in node.outputs)
