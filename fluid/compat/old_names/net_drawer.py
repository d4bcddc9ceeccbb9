"""The ops of programs as a drawing in the DOT language, from whoever writes a variable on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fluid.compat.old_names.graphviz import Graph, Node
from fluid.framework import Program

__all__ = ["draw_graph", "parse_graph"]

OP_STYLE = {"shape": "oval", "color": "#0F9D58", "style": "filled", "fontcolor": "#FFFFFF"}
GRAPH_STYLE = {"rankdir": "TB"}


def parse_graph(
    program: Program, graph: Graph, var_dict: dict[str, Node], **kwargs: object
) -> None:
    """Add the ops of a program's main block to a graph, with an edge for each variable they read.

    `var_dict` has the node that wrote each variable last, and is kept up to date.
    """
    style: dict[str, object] = {**OP_STYLE, **kwargs}
    for op in program.global_block().ops:
        node = graph.node(op.type, "op", op.type, **style)
        for slot in op.input_names:
            for name in op.input(slot):
                if name not in var_dict:
                    var_dict[name] = graph.node(name, "feed", name, shape="box")
                graph.edge(var_dict[name], node, label=f"{slot}({name})")
        var_dict.update(dict.fromkeys(op.output_arg_names, node))


def draw_graph(
    startup_program: Program,
    main_program: Program,
    *,
    filename: str = "",
    graph_attr: Mapping[str, object] = MappingProxyType({}),
    node_attr: Mapping[str, object] = MappingProxyType({}),
    **others: object,
) -> Graph:
    """Draw two programs into one graph, and write it to the file `filename` if that is given.

    `graph_attr` and `node_attr` are attributes of the graph and of its ops.
    """
    graph = Graph("programs", **{**GRAPH_STYLE, **graph_attr})
    writers: dict[str, Node] = {}
    for program in (startup_program, main_program):
        parse_graph(program, graph, writers, **node_attr)
    if filename:
        graph.compile(filename)
    return graph
