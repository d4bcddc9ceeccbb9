"""`Node`: an op or the value of a variable in a graph, with the values it reads and writes."""

from __future__ import annotations

from enum import IntEnum

from compiler.errors import CompileError
from fluid.compat.descs import OpDesc, VarDesc
from fluid.framework import CONTROL_DEP_VAR_PREFIX, Operator, Variable

__all__ = ["Node"]


class Node:
    """A node of a graph, created by the methods of `Graph`.

    A variable that is written several times has a node for each value. `operator` and `variable`
    are those of the program that the graph becomes; control variables, which only order ops, have
    neither. Nodes are numbered in order of creation.
    """

    class Type(IntEnum):
        """The kinds of nodes."""

        Operation = 0
        Variable = 1

    Operation, Variable = Type.Operation, Type.Variable

    def __init__(
        self,
        number: int,
        name: str,
        kind: Type,
        operator: Operator | None = None,
        variable: Variable | None = None,
    ) -> None:
        self._id, self._name, self._kind = number, name, kind
        self.operator, self.variable = operator, variable
        self._inputs: list[Node] = []
        self._outputs: list[Node] = []

    def id(self) -> int:
        """The number of the node in its graph."""
        return self._id

    def name(self) -> str:
        """The type of an op, the name of a variable."""
        return self._name if self.operator is None else self.operator.type

    def node_type(self) -> Type:
        """Whether it is an op or a variable."""
        return self._kind

    def is_op(self) -> bool:
        """Whether it is an op."""
        return self._kind is Node.Type.Operation

    def is_var(self) -> bool:
        """Whether it is a variable, also one that only orders ops."""
        return self._kind is Node.Type.Variable

    def is_ctrl_var(self) -> bool:
        """Whether it is a variable that only orders ops."""
        return self.is_var() and self._name.startswith(CONTROL_DEP_VAR_PREFIX)

    def op(self) -> OpDesc | None:
        """The description of the op, which may be changed; CompileError for a variable."""
        if not self.is_op():
            raise CompileError(f"node {self._name!r} is a variable, not an op")
        return None if self.operator is None else self.operator.desc

    def var(self) -> VarDesc | None:
        """The description of the variable, None for one that only orders ops.

        Raises CompileError for an op.
        """
        if not self.is_var():
            raise CompileError(f"node {self.name()!r} is an op, not a variable")
        return None if self.variable is None else VarDesc(self.variable)

    # ---- edges

    @property
    def inputs(self) -> list[Node]:
        """The variables that an op reads, or the op that writes a variable."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[Node]:
        """The variables that an op writes, or the ops that read a variable."""
        return list(self._outputs)

    def append_input(self, node: Node) -> None:
        """Append a node to the inputs of this one; the other's outputs do not change."""
        self._inputs.append(node)

    def append_output(self, node: Node) -> None:
        """Append a node to the outputs of this one; the other's inputs do not change."""
        self._outputs.append(node)

    def remove_input(self, node: Node | int) -> None:
        """Remove a node, or the node of a number, from the inputs of this one."""
        self._inputs = _without(self._inputs, node)

    def remove_output(self, node: Node | int) -> None:
        """Remove a node, or the node of a number, from the outputs of this one."""
        self._outputs = _without(self._outputs, node)

    def clear_inputs(self) -> None:
        """Remove all inputs."""
        self._inputs = []

    def clear_outputs(self) -> None:
        """Remove all outputs."""
        self._outputs = []

    def __repr__(self) -> str:
        return f"<Node {self._id}: {self.name()}>"


def _without(nodes: list[Node], removed: Node | int) -> list[Node]:
    number = removed if isinstance(removed, int) else removed.id()
    return [node for node in nodes if node.id() != number]
