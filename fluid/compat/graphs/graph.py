"""`Graph`: the main block of a program as nodes for ops and values.

Reference: paddle/fluid/framework/ir/graph.cc of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from compiler.errors import CompileError
from fluid.compat.descs import OpDesc, ProgramDesc, VarDesc
from fluid.compat.graphs.nodes import Node
from fluid.compat.graphs.traversal import topology_sort
from fluid.framework import CONTROL_DEP_VAR_PREFIX, Block, Operator, Program, Variable
from fluid.recording.op_records import user_line

__all__ = ["Graph"]


class Graph:
    """A graph of a copy of a program's main block; TypeError for what is no ProgramDesc.

    Ops that read a variable are connected with the value before them. Ops that overwrite it follow
    its writer and its readers: a control variable connects those that no other value does.
    """

    def __init__(self, desc: ProgramDesc) -> None:
        if not isinstance(desc, ProgramDesc):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
            raise TypeError(f"Graph takes Program.desc, not {type(desc).__name__}")
        self._created = 0
        self._attributes: dict[str, object] = {}
        self._read(_copied(desc))

    def _read(self, program: Program) -> None:
        """Replace all nodes by those of a program."""
        self.program = program
        self._block = program.global_block()
        self._nodes: dict[int, Node] = {}
        self.resolve_hazard(self._add_block(self._block))

    def _add_block(self, block: Block) -> dict[str, list[Node]]:
        """Add nodes for the ops of a block; returns the values of each variable in order."""
        values: dict[str, list[Node]] = {}
        for op in block.ops:
            node = self._add(op.type, Node.Type.Operation, operator=op)
            for name in op.reads():
                if name not in values:
                    values[name] = [self._value(block, name)]
                _connect(values[name][-1], node)
            for name in op.writes():
                values.setdefault(name, []).append(self._value(block, name))
                _connect(node, values[name][-1])
        values |= {name: [self._value(block, name)] for name in block.vars if name not in values}
        return values

    def _value(self, block: Block, name: str) -> Node:
        """A node for a value of a variable; one of an enclosing block has no description."""
        variable = block.vars.get(name)
        copied = None if variable is None else variable.copied_to(block)
        return self._add(name, Node.Type.Variable, variable=copied)

    def _add(
        self,
        name: str,
        kind: Node.Type,
        operator: Operator | None = None,
        variable: Variable | None = None,
    ) -> Node:
        node = Node(self._created, name, kind, operator, variable)
        self._nodes[self._created] = node
        self._created += 1
        return node

    # ---- nodes

    def nodes(self) -> set[Node]:
        """All nodes."""
        return set(self._nodes.values())

    def has_node(self, node: Node) -> bool:
        """Whether a node is in this graph."""
        return self._nodes.get(node.id()) is node

    def create_var_node(self, var_desc: VarDesc) -> Node:
        """Add a value of a variable, with a copy of its description."""
        variable = _variable(var_desc, self._block)
        return self._add(variable.name, Node.Type.Variable, variable=variable)

    def create_op_node(self, op_desc: OpDesc) -> Node:
        """Add an op, with a copy of its description, and without edges."""
        source = op_desc.described_op.source or user_line()
        operator = Operator(self._block, op_desc.type(), {}, {}, None, source)
        operator.desc.copy_from(op_desc)
        operator.recorded = getattr(op_desc.described_op, "recorded", False)
        return self._add(operator.type, Node.Type.Operation, operator=operator)

    def create_control_dep_var(self) -> Node:
        """Add a variable that only orders ops."""
        return self._add(f"{CONTROL_DEP_VAR_PREFIX}@{self._created}", Node.Type.Variable)

    def create_empty_node(self, name: str, kind: Node.Type) -> Node:
        """Add a node without a description."""
        return self._add(name, kind)

    def retrieve_node(self, number: int) -> Node:
        """The node of a number; CompileError if there is none."""
        if number not in self._nodes:
            raise CompileError(f"the graph has no node {number}")
        return self._nodes[number]

    def remove_node(self, node: Node) -> Node:
        """Remove a node without its edges; CompileError if it is not in the graph."""
        self.retrieve_node(node.id())
        return self._nodes.pop(node.id())

    def release_nodes(self) -> list[Node]:
        """Remove all nodes; returns them."""
        released, self._nodes = list(self._nodes.values()), {}
        return released

    # ---- the order of writes

    def resolve_hazard(self, var_nodes: Mapping[str, Iterable[Node]]) -> None:
        """Let each op that overwrites a variable follow its previous writer and its readers.

        `var_nodes` has the values of each variable in order.
        """
        for values in var_nodes.values():
            for old, new in reversed(list(pairwise(values))):
                self._order_writes(old, new)

    def _order_writes(self, old: Node, new: Node) -> None:
        if not new.inputs:
            raise CompileError(f"no op writes the second value of {new.name()!r}")
        writer = new.inputs[0]
        for earlier in old.inputs[:1]:
            if earlier is not writer:
                self._order(earlier, writer)
        for reader in old.outputs:
            if reader is not writer and not set(reader.outputs) & set(writer.inputs):
                self._order(reader, writer)

    def _order(self, first: Node, second: Node) -> None:
        control = self.create_control_dep_var()
        _connect(first, control)
        _connect(control, second)

    # ---- attributes, which passes read

    def has(self, name: str) -> bool:
        """Whether the graph has an attribute."""
        return name in self._attributes

    def set(self, name: str, value: object) -> None:
        """Set an attribute."""
        self._attributes[name] = value

    set_not_owned = set

    def get(self, name: str) -> object:
        """The value of an attribute; CompileError if the graph has none of this name."""
        if name not in self._attributes:
            raise CompileError(f"the graph has no attribute {name!r}")
        return self._attributes[name]

    get_bool = get_int = get_float = get_double = get_string = get_marked_nodes = get

    def erase(self, name: str) -> None:
        """Remove an attribute, if it is there."""
        self._attributes.pop(name, None)

    # ---- copies and programs

    def rewrite(self, change: Callable[[Program], None]) -> None:
        """Replace all nodes by those of the changed program; its attributes stay."""
        program = self.to_program()
        change(program)
        self._read(program)

    def origin_program_desc(self) -> ProgramDesc:
        """The description of the program that the graph was made from."""
        return self.program.desc

    def clone(self) -> Graph:
        """A copy of the nodes and edges, with the same numbers; attributes are not copied."""
        copied = Graph(ProgramDesc())
        copied.program, copied._block = self.program, self._block
        copied._created = self._created
        copied._nodes = {number: self._cloned(node) for number, node in self._nodes.items()}
        for number, node in self._nodes.items():
            for read in node.inputs:
                copied._nodes[number].append_input(copied._nodes[read.id()])
            for written in node.outputs:
                copied._nodes[number].append_output(copied._nodes[written.id()])
        return copied

    def _cloned(self, node: Node) -> Node:
        operator = node.operator and node.operator.copied_to(self._block)
        variable = node.variable and node.variable.copied_to(self._block)
        return Node(node.id(), node.name(), node.node_type(), operator, variable)

    def to_program(self) -> Program:
        """A program of the ops in topological order, with the other blocks of the original.

        Raises CompileError for a graph with a cycle.
        """
        program = self.program.copied()
        block = program.global_block()
        block.vars = {}
        for number in sorted(self._nodes):
            variable = self._nodes[number].variable
            if variable is not None:
                block.vars.setdefault(variable.name, variable.copied_to(block))
        operators = [node.operator for node in topology_sort(self)]
        block.ops = [op.copied_to(block) for op in operators if op is not None]
        for op in block.ops:
            block.claim(op)
        program.touch()
        return program


def _copied(desc: ProgramDesc) -> Program:
    """A copy of the program behind a description, with the names that its layers gave."""
    described = desc.described_program
    if not isinstance(described, Program):
        return Program.parse_from_string(desc.serialize_to_string())
    copied = described.copied()
    copied.undo_renaming()
    return copied


def _variable(desc: VarDesc, block: Block) -> Variable:
    """A variable with a copy of a description, not declared in the block."""
    described = desc.described_var
    if isinstance(described, Variable):
        return described.copied_to(block)
    fields = {
        name: value for name, value in vars(described).items() if name not in ("dims", "element")
    }
    scratch = Program().global_block()
    added = scratch.add_var(shape=described.dims, dtype=described.element, **fields)
    return added.copied_to(block)


def _connect(source: Node, target: Node) -> None:
    source.append_output(target)
    target.append_input(source)
