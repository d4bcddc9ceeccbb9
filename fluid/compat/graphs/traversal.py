"""Orders and connections of the ops of a graph.

Reference: paddle/fluid/framework/ir/graph_helper.cc of release 1.8.5, whose order of ops this is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from compiler.errors import CompileError
from fluid.compat.graphs.nodes import Node

__all__ = [
    "build_adjacency_list", "graph_num", "graph_safe_remove_nodes", "has_circle", "topology_sort",
]  # fmt: skip


class NodeSet(Protocol):
    """A graph as a set of nodes."""

    def nodes(self) -> set[Node]:
        """All nodes."""
        ...

    def remove_node(self, node: Node) -> Node:
        """Remove a node without its edges; returns it."""
        ...


def build_adjacency_list(graph: NodeSet) -> dict[Node, set[Node]]:
    """For each op, the ops that write what it reads, or that it must follow."""
    return {op: set(_predecessors(op)) for op in _ops(graph)}


def _ops(graph: NodeSet) -> list[Node]:
    return sorted([node for node in graph.nodes() if node.is_op()], key=Node.id)


def _predecessors(op: Node) -> list[Node]:
    writers = {writer.id(): writer for value in op.inputs for writer in value.inputs}
    return [writers[number] for number in sorted(writers)]


def topology_sort(graph: NodeSet) -> list[Node]:
    """The ops in an order in which each follows those whose results it reads.

    Otherwise by number: an op is preceded by what it needs, in order of creation. Raises
    CompileError for a graph with a cycle.
    """
    order = _sorted(graph)
    if order is None:
        raise CompileError("the graph has a cycle, so its ops have no order")
    return order


def has_circle(graph: NodeSet) -> bool:
    """Whether ops depend on their own results."""
    return _sorted(graph) is None


def _sorted(graph: NodeSet) -> list[Node] | None:
    """Ops in postorder of a depth-first search of their predecessors; None for a cycle."""
    order: list[Node] = []
    done: set[Node] = set()
    for op in _ops(graph):
        open_nodes: dict[Node, Iterator[Node]] = {}
        if op not in done:
            open_nodes[op] = iter(_predecessors(op))
        while open_nodes:
            current = next(reversed(open_nodes))
            before = next((node for node in open_nodes[current] if node not in done), None)
            if before is None:
                del open_nodes[current]
                done.add(current)
                order.append(current)
            elif before in open_nodes:
                return None
            else:
                open_nodes[before] = iter(_predecessors(before))
    return order


def graph_num(graph: NodeSet) -> int:
    """The number of parts of a graph that no edge connects."""
    nodes, count = graph.nodes(), 0
    while nodes:
        count += 1
        reached = [nodes.pop()]
        while reached:
            node = reached.pop()
            neighbours = nodes.intersection([*node.inputs, *node.outputs])
            nodes -= neighbours
            reached.extend(neighbours)
    return count


def graph_safe_remove_nodes(graph: NodeSet, nodes: Iterable[Node]) -> None:
    """Remove nodes with all edges to and from them."""
    for node in list(nodes):
        for neighbour in [*node.inputs, *node.outputs]:
            neighbour.remove_input(node)
            neighbour.remove_output(node)
        graph.remove_node(node)
