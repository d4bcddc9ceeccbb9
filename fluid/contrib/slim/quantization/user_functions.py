"""Insertion of a user's own quantization or preprocessing into a graph.

Reference: QuantizationTransformPass._insert_func of release 1.8.5. There the gradient of a value
that needs none, such as a feed, is not computed, so functions of it do not train.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.program import GRAD
from compiler.support.dataclass import dataclass
from fluid import layers, unique_name
from fluid.compat.graphs import Graph, IrGraph, IrNode, IrOpNode, IrVarNode
from fluid.data import data
from fluid.executor import Executor, scope_guard
from fluid.framework import Program, Variable, recording_guard
from fluid.optimizer import Optimizer
from runtime.tensors.scope import Scope

__all__ = ["UserFunctions"]


@dataclass(frozen=True)
class Recorded:
    """The program of a function: the names of its input and result, and of their mean."""

    program: Program
    source: str
    result: str
    loss: str


@dataclass(frozen=True)
class UserFunctions:
    """Inserts functions into one graph; for training they need all three fields."""

    graph: IrGraph
    scope: Scope | None
    executor: Executor | None
    optimizer_func: Callable[[], Optimizer] | None

    def insert(
        self, function: Callable[[Variable], Variable], value: IrVarNode, op: IrOpNode
    ) -> IrVarNode:
        """Let an op read what a function makes of a value; returns that result.

        In training its gradient op does so too, and an optimizer updates the parameters of the
        function. AssertionError without an executor and a scope, in training also without an
        optimizer.
        """
        op_grad = None if self.graph.is_test() else self._gradient_op(op)
        recorded = self._recorded(function, value, trains=op_grad is not None)
        self.graph.out_node_mapping_table[recorded.result] = value.name()
        copies = self._copied(recorded.program)
        source = _named(copies, recorded.source)
        result = _named(copies, recorded.result)
        assert isinstance(result, IrVarNode)
        for reader in _ops(source.outputs):
            self.graph.update_input_link(source, value, reader)
        self.graph.update_input_link(value, result, op)
        if op_grad is not None:
            self._join_gradients(recorded, copies, value, op_grad)
        loss = _named(copies, recorded.loss)
        self.graph.safe_remove_nodes([*loss.inputs, loss, source])
        return result

    def _recorded(
        self, function: Callable[[Variable], Variable], value: IrVarNode, trains: bool
    ) -> Recorded:
        """Record a function on a stand-in for a value, and initialise its parameters."""
        assert self.executor is not None, "executor must be set for a function of the user"
        assert self.scope is not None, "scope must be set for a function of the user"
        program, startup = Program(), Program()
        with recording_guard(program, startup), unique_name.guard(f"{value.name()}_"):
            source = data(f"{value.name()}_tmp_input", value.shape(), "float32")
            result = function(source)
            loss = layers.mean(result)
            if trains:
                assert self.optimizer_func, "optimizer_func must be set for training"
                source.stop_gradient = False
                self.optimizer_func().minimize(loss)
        if startup.global_block().ops:
            with scope_guard(self.scope):
                self.executor.run(startup)
        return Recorded(program, source.name, result.name, loss.name)

    def _copied(self, program: Program) -> list[IrNode]:
        """Add the nodes and edges of a program to the graph; returns the new nodes."""
        other = IrGraph(Graph(program.desc))
        copies = {node: self._copy(node) for node in sorted(other.all_nodes(), key=IrNode.id)}
        for node, copy in copies.items():
            for read in node.inputs:
                copy.append_input(copies[read])
            for written in node.outputs:
                copy.append_output(copies[written])
        return list(copies.values())

    def _copy(self, node: IrNode) -> IrNode:
        if node.is_op():
            return self.graph.create_op_node_from_desc(node.op())
        described = node.var()
        if described is None:
            return self.graph.create_control_dep_var()
        return self.graph.create_var_node_from_desc(described)

    def _join_gradients(
        self, recorded: Recorded, copies: list[IrNode], value: IrVarNode, op_grad: IrOpNode
    ) -> None:
        """Let gradients flow from a gradient op through the function to the value."""
        result = _named(copies, recorded.result)
        result_grad = _named(copies, recorded.result + GRAD)
        source_grad = _named(copies, recorded.source + GRAD)
        seed_ops = _ops(result_grad.inputs)
        slot = next(slot for slot, names in op_grad.op().inputs().items() if value.name() in names)
        self.graph.update_input_link(value, result, op_grad)
        value_grad = [n for n in op_grad.outputs if n.name().startswith(value.name() + GRAD)]
        if value_grad:
            self.graph.update_output_link(value_grad[0], result_grad, op_grad)
        else:
            op_grad.op().set_output(slot + GRAD, [result_grad.name()])
            self.graph.link_to(op_grad, result_grad)
        for writer in _ops(source_grad.inputs):
            if value_grad:
                self.graph.update_output_link(source_grad, value_grad[0], writer)
        loss_grad = _named(copies, recorded.loss + GRAD)
        self.graph.safe_remove_nodes([*seed_ops, *loss_grad.inputs, loss_grad])
        if value_grad:
            self.graph.safe_remove_nodes(source_grad)

    def _gradient_op(self, op: IrOpNode) -> IrOpNode | None:
        """The gradient op of an op; None for one that the loss does not depend on."""
        wanted, kind = op.outputs[0].name() + GRAD, f"{op.name()}_grad"
        gradients = [node for node in self.graph.topology_sort() if node.name() == kind]
        return next((node for node in gradients if wanted in node.input_arg_names()), None)


def _named(nodes: list[IrNode], name: str) -> IrNode:
    """The last value of a variable; AssertionError if there is none."""
    matches = [node for node in nodes if node.name() == name]
    assert matches, f"the function does not compute {name!r}"
    return matches[-1]


def _ops(nodes: list[IrNode]) -> list[IrOpNode]:
    return [node for node in nodes if isinstance(node, IrOpNode)]
