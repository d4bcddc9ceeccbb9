"""`IrNode`, `IrOpNode`, `IrVarNode`: nodes of a graph as scripts handle them."""

from __future__ import annotations

from compiler.ir.types import VarTypeId
from fluid.compat.descs import OpDesc, VarDesc
from fluid.compat.graphs.nodes import Node

__all__ = ["IrNode", "IrOpNode", "IrVarNode"]


class IrNode:
    """A node of a graph; two are equal if they stand for the same `core.Node`."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node, Node), "node must be a core.Node"  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        self.node = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrNode) and other.node is self.node

    def __hash__(self) -> int:
        return self.node.id()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id()}: {self.name()}>"

    def name(self) -> str:
        """The type of an op, the name of a variable."""
        return self.node.name()

    def node_type(self) -> Node.Type:
        """Whether it is an op or a variable."""
        return self.node.node_type()

    def var(self) -> VarDesc | None:
        """The description of the variable, None for one that only orders ops."""
        return self.node.var()

    def op(self) -> OpDesc:
        """The description of the op; AssertionError for a node without one."""
        described = self.node.op()
        assert described is not None, f"{self!r} has no description"
        return described

    def id(self) -> int:
        """The number of the node in its graph."""
        return self.node.id()

    def is_op(self) -> bool:
        """Whether it is an op."""
        return self.node.is_op()

    def is_var(self) -> bool:
        """Whether it is a variable."""
        return self.node.is_var()

    def is_ctrl_var(self) -> bool:
        """Whether it is a variable that only orders ops."""
        return self.node.is_ctrl_var()

    # ---- edges

    @property
    def inputs(self) -> list[IrNode]:
        """The variables that an op reads, or the op that writes a variable."""
        return [ir_node(node) for node in self.node.inputs]

    @property
    def outputs(self) -> list[IrNode]:
        """The variables that an op writes, or the ops that read a variable."""
        return [ir_node(node) for node in self.node.outputs]

    def append_input(self, node: IrNode) -> None:
        """Append a node to the inputs of this one."""
        self.node.append_input(node.node)

    def append_output(self, node: IrNode) -> None:
        """Append a node to the outputs of this one."""
        self.node.append_output(node.node)

    def remove_input(self, node: IrNode) -> None:
        """Remove a node from the inputs of this one."""
        self.node.remove_input(node.node)

    def remove_output(self, node: IrNode) -> None:
        """Remove a node from the outputs of this one."""
        self.node.remove_output(node.node)

    def remove_input_by_id(self, node_id: int) -> None:
        """Remove the node of a number from the inputs of this one."""
        self.node.remove_input(node_id)

    def remove_output_by_id(self, node_id: int) -> None:
        """Remove the node of a number from the outputs of this one."""
        self.node.remove_output(node_id)

    def clear_inputs(self) -> None:
        """Remove all inputs."""
        self.node.clear_inputs()

    def clear_outputs(self) -> None:
        """Remove all outputs."""
        self.node.clear_outputs()


class IrVarNode(IrNode):
    """The value of a variable. AssertionError for a node that is none."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert node.is_var(), f"{node!r} is not a variable"

    def _desc(self) -> VarDesc:
        described = self.node.var()
        assert described is not None, f"{self!r} has no description"
        return described

    def set_shape(self, shape: list[int]) -> None:
        """Change the sizes of the variable."""
        self._desc().set_shape(shape)

    def persistable(self) -> bool:
        """Whether the variable outlives a run."""
        return self._desc().persistable()

    def type(self) -> VarTypeId:
        """What the variable holds."""
        return self._desc().type()

    def dtype(self) -> VarTypeId:
        """The element type."""
        return self._desc().dtype()

    def shape(self) -> list[int]:
        """The sizes, -1 where unknown."""
        return self._desc().shape()


class IrOpNode(IrNode):
    """An op. AssertionError for a node that is none."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        assert node.is_op(), f"{node!r} is not an op"

    def rename_input(self, old_input_name: str, new_input_name: str) -> None:
        """Rename a variable in all input slots."""
        self.op().rename_input(old_input_name, new_input_name)

    def rename_output(self, old_output_name: str, new_output_name: str) -> None:
        """Rename a variable in all output slots."""
        self.op().rename_output(old_output_name, new_output_name)

    def input(self, name: str) -> list[str]:
        """The variables of an input slot; CompileError where there is no such slot."""
        return self.op().input(name)

    def output(self, name: str) -> list[str]:
        """The variables of an output slot; CompileError where there is no such slot."""
        return self.op().output(name)

    def set_type(self, new_type: str) -> None:
        """Change the type of the op."""
        self.op().set_type(new_type)

    def set_attr(self, name: str, val: object) -> None:
        """Set an attribute; TypeError for a value that cannot be serialised."""
        self.op().set_attr(name, val)

    def input_arg_names(self) -> list[str]:
        """The names of all variables that it reads."""
        return self.op().input_arg_names()

    def output_arg_names(self) -> list[str]:
        """The names of all variables that it writes."""
        return self.op().output_arg_names()

    _update_desc_attr = set_attr


def ir_node(node: Node) -> IrNode:
    """The view of a node: an op's or a variable's."""
    return IrOpNode(node) if node.is_op() else IrVarNode(node)
