"""Graphs of a program's main block: `core.Graph`, `framework.IrGraph` and the nodes of both.

A graph has nodes for ops and for the values of variables. It is made from a copy of a program;
`to_program` makes a program of it again. Read `nodes`, `graph`, then `ir_graph`.
"""

from fluid.compat.graphs.graph import Graph
from fluid.compat.graphs.ir_graph import IrGraph
from fluid.compat.graphs.ir_nodes import IrNode, IrOpNode, IrVarNode
from fluid.compat.graphs.nodes import Node
from fluid.compat.graphs.passes import Pass, PassBuilder, get_pass
from fluid.compat.graphs.traversal import (
    build_adjacency_list,
    graph_num,
    graph_safe_remove_nodes,
    has_circle,
    topology_sort,
)

__all__ = [
    "Graph",
    "IrGraph",
    "IrNode",
    "IrOpNode",
    "IrVarNode",
    "Node",
    "Pass",
    "PassBuilder",
    "build_adjacency_list",
    "get_pass",
    "graph_num",
    "graph_safe_remove_nodes",
    "has_circle",
    "topology_sort",
]
