"""`IrGraph`: the graph of a program that scripts rewrite.

Reference: class IrGraph in python/paddle/fluid/framework.py of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from fluid.compat.descs import OpDesc, VarDesc
from fluid.compat.graphs import traversal
from fluid.compat.graphs.drawing import write_dot
from fluid.compat.graphs.graph import Graph
from fluid.compat.graphs.ir_nodes import IrNode, IrOpNode, IrVarNode, ir_node
from fluid.compat.graphs.nodes import Node
from fluid.framework import Program

__all__ = ["IrGraph"]


class Named(Protocol):
    """What has a name."""

    def name(self) -> str:
        """The name."""
        ...


N = TypeVar("N", bound=Named)


class IrGraph:
    """A `core.Graph` with views of its nodes; `for_test` says that it is not for training.

    Raises AssertionError for anything but a `core.Graph`.
    """

    def __init__(self, graph: Graph, for_test: bool = False) -> None:
        assert isinstance(graph, Graph), "graph must be a core.Graph: core.Graph(program.desc)"  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        self.graph = graph
        self._for_test = for_test
        self.out_node_mapping_table: dict[str, str] = {}
        """What a user's function of a quantization pass replaces: variables by their new name."""

    def clone(self) -> IrGraph:
        """A copy of the nodes and edges."""
        return IrGraph(self.graph.clone(), self._for_test)

    def is_test(self) -> bool:
        """Whether the graph is not for training."""
        return self._for_test

    # ---- nodes

    def _in_order(self) -> list[Node]:
        return sorted(self.graph.nodes(), key=Node.id)

    def all_nodes(self) -> set[IrNode]:
        """All nodes."""
        return {ir_node(node) for node in self._in_order()}

    def all_var_nodes(self) -> set[IrVarNode]:
        """The values of variables."""
        return {IrVarNode(node) for node in self._in_order() if node.is_var()}

    def all_persistable_nodes(self) -> set[IrVarNode]:
        """The values of variables that outlive a run."""
        return {node for node in self.all_var_nodes() if node.var() and node.persistable()}

    def all_op_nodes(self) -> set[IrOpNode]:
        """The ops."""
        return {IrOpNode(node) for node in self._in_order() if node.is_op()}

    def create_persistable_node(
        self, name: str, var_type: int, shape: Sequence[int], var_dtype: int
    ) -> IrVarNode:
        """Add a value of a new variable that outlives a run."""
        return self._created(name, var_type, shape, var_dtype, persistable=True)

    def create_var_node(
        self, name: str, var_type: int, shape: Sequence[int], var_dtype: int
    ) -> IrVarNode:
        """Add a value of a new temporary variable."""
        return self._created(name, var_type, shape, var_dtype, persistable=False)

    def _created(
        self, name: str, var_type: int, shape: Sequence[int], var_dtype: int, persistable: bool
    ) -> IrVarNode:
        described = VarDesc(name)
        described.set_type(var_type)
        described.set_shape(shape)
        described.set_dtype(var_dtype)
        described.set_persistable(persistable)
        return self.create_var_node_from_desc(described)

    def create_var_node_from_desc(self, var_desc: VarDesc) -> IrVarNode:
        """Add a value of a variable, by its description."""
        return IrVarNode(self.graph.create_var_node(var_desc))

    def create_control_dep_var(self) -> IrVarNode:
        """Add a variable that only orders ops."""
        return IrVarNode(self.graph.create_control_dep_var())

    def create_op_node(
        self,
        op_type: str,
        attrs: Mapping[str, object],
        inputs: Mapping[str, IrNode | Sequence[IrNode]],
        outputs: Mapping[str, IrNode | Sequence[IrNode]],
    ) -> IrOpNode:
        """Add an op that reads and writes variables by name; `link_to` adds the edges."""
        described = OpDesc()
        described.set_type(op_type)
        for name, value in attrs.items():
            described.set_attr(name, value)
        for slot, nodes in inputs.items():
            described.set_input(slot, _names(nodes))
        for slot, nodes in outputs.items():
            described.set_output(slot, _names(nodes))
        return self.create_op_node_from_desc(described)

    def create_op_node_from_desc(self, op_desc: OpDesc) -> IrOpNode:
        """Add an op by its description; `link_to` adds the edges."""
        return IrOpNode(self.graph.create_op_node(op_desc))

    def safe_remove_nodes(self, remove_nodes: IrNode | Iterable[IrNode]) -> None:
        """Remove one or several nodes with their edges."""
        nodes = [remove_nodes] if isinstance(remove_nodes, IrNode) else remove_nodes
        unique = {node.node.id(): node.node for node in nodes}
        traversal.graph_safe_remove_nodes(self.graph, unique.values())

    # ---- edges

    def link_to(self, node_in: IrNode, node_out: IrNode) -> None:
        """Add an edge between two nodes of the graph."""
        self._expect_own(node_in, node_out)
        node_in.append_output(node_out)
        node_out.append_input(node_in)

    def update_input_link(
        self, old_input_node: IrNode, new_input_node: IrNode, op_node: IrOpNode
    ) -> None:
        """Let an op read another variable in place of one, in all slots."""
        self._expect_own(old_input_node, new_input_node, op_node)
        old_input_node.remove_output(op_node)
        op_node.remove_input(old_input_node)
        new_input_node.append_output(op_node)
        op_node.append_input(new_input_node)
        op_node.rename_input(old_input_node.name(), new_input_node.name())

    def update_output_link(
        self, old_output_node: IrNode, new_output_node: IrNode, op_node: IrOpNode
    ) -> None:
        """Let an op write another variable in place of one, in all slots."""
        self._expect_own(old_output_node, new_output_node, op_node)
        old_output_node.remove_input(op_node)
        op_node.remove_output(old_output_node)
        new_output_node.append_input(op_node)
        op_node.append_output(new_output_node)
        op_node.rename_output(old_output_node.name(), new_output_node.name())

    def _expect_own(self, *nodes: IrNode) -> None:
        """AssertionError for a node of another graph, or one that was removed."""
        for node in nodes:
            assert self.graph.has_node(node.node), f"{node!r} is not in the graph"

    def resolve_hazard(self) -> None:
        """Order ops that overwrite variables behind the readers of the values before."""
        values: dict[str, list[Node]] = {}
        for node in traversal.topology_sort(self.graph):
            if node.operator is None:
                continue
            for name in node.operator.reads():
                if name not in values:
                    values[name] = [self._find_node_by_name(node.inputs, name)]
            for name in node.operator.writes():
                values.setdefault(name, []).append(self._find_node_by_name(node.outputs, name))
        self.graph.resolve_hazard(values)

    @staticmethod
    def _find_node_by_name(nodes: Iterable[N], node_name: str) -> N:
        """The last of some nodes with a name; AssertionError if there is none."""
        matches = [node for node in nodes if node.name() == node_name]
        assert matches, f"there is no node {node_name!r} among {list(nodes)}"
        return matches[-1]

    # ---- the whole graph

    def has_circle(self) -> bool:
        """Whether ops depend on their own results."""
        return traversal.has_circle(self.graph)

    def graph_num(self) -> int:
        """The number of parts of the graph that no edge connects."""
        return traversal.graph_num(self.graph)

    def topology_sort(self) -> list[IrOpNode]:
        """The ops in an order in which each follows those whose results it reads."""
        return [IrOpNode(node) for node in traversal.topology_sort(self.graph)]

    def build_adjacency_list(self) -> dict[IrOpNode, set[IrOpNode]]:
        """For each op, the ops that it must follow."""
        adjacency = traversal.build_adjacency_list(self.graph)
        return {IrOpNode(op): {IrOpNode(node) for node in adjacency[op]} for op in adjacency}

    def draw(
        self,
        save_path: str,
        name: str,
        marked_nodes: IrNode | Iterable[IrNode] | None = None,
        remove_ctr_var: bool = True,
    ) -> None:
        """Write a drawing in the DOT language to the file `name`.dot in the folder `save_path`.

        `marked_nodes` have another color. Control variables are removed from the graph, unless
        `remove_ctr_var` is False. `dot -Tpdf` makes a picture of the file.
        """
        if remove_ctr_var:
            controls = [node for node in self.all_var_nodes() if node.is_ctrl_var()]
            self.safe_remove_nodes(controls)
        print(f"Total ops num = {len(self.all_op_nodes())}.")
        marked = [marked_nodes] if isinstance(marked_nodes, IrNode) else marked_nodes or ()
        Path(save_path).mkdir(parents=True, exist_ok=True)
        write_dot(self._in_order(), {node.id() for node in marked}, Path(save_path, f"{name}.dot"))

    def to_program(self) -> Program:
        """A program of the ops in topological order; parameters stay parameters.

        Raises CompileError for a graph with a cycle.
        """
        return self.graph.to_program()


def _names(nodes: IrNode | Sequence[IrNode]) -> list[str]:
    return [node.name() for node in ([nodes] if isinstance(nodes, IrNode) else nodes)]
