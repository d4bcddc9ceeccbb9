"""Insertion of ops and of their state into graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from compiler.ir.program import OpRole
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.compat.graphs import IrGraph, IrOpNode, IrVarNode
from fluid.recording.narrowing import is_sequence
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["StateNodes", "insert_op", "moving_average_state", "new_value", "read", "write"]

VarType = VarDesc.VarType
FIRST_SCALE = 0.001
"""The scale of activations before the first step."""


def read(scope: Scope, name: str) -> Array:
    """A copy of the value of a variable; ValueError if the scope has none of this name."""
    variable = scope.find_var(name)
    if variable is None:
        raise ValueError(f"variable {name!r} is not in the scope: run the startup program first")
    return np.array(variable.get_tensor())


def write(scope: Scope, place: Place, name: str, value: ArrayLike) -> None:
    """Set the value of a variable, which is created if it is not there."""
    scope.var(name).get_tensor().set(np.asarray(value), place)


def insert_op(
    graph: IrGraph,
    kind: str,
    attrs: Mapping[str, object],
    inputs: Mapping[str, IrVarNode | Sequence[IrVarNode]],
    outputs: Mapping[str, IrVarNode],
) -> IrOpNode:
    """Add a forward op with edges from its inputs and to its outputs."""
    every_attr = {**attrs, "op_role": int(OpRole.FORWARD)}
    op = graph.create_op_node(kind, every_attr, inputs, outputs)
    for nodes in inputs.values():
        for node in nodes if is_sequence(nodes) else [nodes]:
            assert isinstance(node, IrVarNode)
            graph.link_to(node, op)
    for node in outputs.values():
        graph.link_to(op, node)
    return op


def new_value(
    graph: IrGraph, name: str, like: IrVarNode, shape: Sequence[int] | None = None
) -> IrVarNode:
    """Add a temporary variable of the type of another one, by default also of its shape."""
    sizes = like.shape() if shape is None else shape
    return graph.create_var_node(name, like.type(), sizes, like.dtype())


@dataclass(frozen=True)
class StateNodes:
    """Adds variables that outlive a run to a graph, and their first values to a scope.

    AssertionError without a scope or a place.
    """

    graph: IrGraph
    scope: Scope | None
    place: Place | None

    def add(self, name: str, like: IrVarNode, value: Array) -> IrVarNode:
        """Add a variable of the element type of another one, float32 unless that is float64."""
        dtype = np.float64 if like.dtype() == VarType.FP64 else np.float32
        return self._add(name, value.astype(dtype), like.dtype())

    def add_counter(self, name: str) -> IrVarNode:
        """Add a counter of steps, int64 [1], from 0."""
        return self._add(name, np.zeros(1, np.int64), VarType.INT64)

    def _add(self, name: str, value: Array, dtype: int) -> IrVarNode:
        assert self.scope is not None, "The scope cannot be set None."
        assert self.place is not None, "The place cannot be set None."
        write(self.scope, self.place, name, value)
        return self.graph.create_persistable_node(
            name, VarType.LOD_TENSOR, list(value.shape), dtype
        )

    def next_value(self, node: IrVarNode) -> IrVarNode:
        """Add the value of a variable after an op that updates it."""
        described = node.var()
        assert described is not None
        return self.graph.create_var_node_from_desc(described)


def moving_average_state(
    states: StateNodes, like: IrVarNode, state: str, accum: str
) -> tuple[dict[str, IrVarNode], dict[str, IrVarNode]]:
    """Add the state of a moving average, with generated names; the input and output slots."""
    before_state = states.add(unique_name.generate(state), like, np.ones(1))
    before_accum = states.add(unique_name.generate(accum), like, np.ones(1))
    inputs = {"InState": before_state, "InAccum": before_accum}
    outputs = {
        "OutState": states.next_value(before_state),
        "OutAccum": states.next_value(before_accum),
    }
    return inputs, outputs
