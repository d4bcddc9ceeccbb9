"""The slots of ops whose values quantization looks at, and searches for them in graphs."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.compat.graphs import IrGraph, IrNode, IrOpNode, IrVarNode
from fluid.framework import Operator

__all__ = [
    "OUT_SCALE_OPS", "SLOTS", "input_names", "is_skipped", "op_nodes", "output_names",
    "reads_no_weight", "remove_unused_variables",
]  # fmt: skip

_XY = [["X", "Y"], ["Out"]]
_X = [["X"], ["Out"]]
_BINARY = (
    "mul matmul elementwise_add elementwise_sub elementwise_mul equal not_equal greater_equal "
    "greater_than less_equal less_than"
).split()
_UNARY = (
    "pool2d concat softmax argmax transpose transpose2 gather mean reshape reshape2 "
    "bilinear_interp nearest_interp trilinear_interp squeeze relu relu6 leaky_relu prelu tanh "
    "swish dropout sigmoid scale"
).split()
SLOTS = {
    **{kind: [["Input", "Filter"], ["Output"]] for kind in ("conv2d", "depthwise_conv2d")},
    **dict.fromkeys(_BINARY, _XY),
    **dict.fromkeys(_UNARY, _X),
    "slice": [["Input"], ["Out"]],
    "batch_norm": [["X"], ["Y"]],
}
"""For each op type the input and the output slots that hold activations and weights."""

OUT_SCALE_OPS = (
    "conv2d depthwise_conv2d mul matmul relu leaky_relu relu6 sigmoid tanh prelu swish softmax "
    "batch_norm elementwise_add pool2d reshape2 transpose2 concat elementwise_mul scale"
).split()
"""The op types whose results get a scale."""


def input_names(op: IrOpNode | Operator) -> list[str]:
    """The variables in the input slots of `SLOTS`; AssertionError for what is no op."""
    assert isinstance(op, IrNode | Operator), "op must be an IrOpNode or an Operator"
    slots = SLOTS[op.name() if isinstance(op, IrNode) else op.type][0]
    return [name for slot in slots for name in op.input(slot)]


def output_names(op: IrOpNode | Operator) -> list[str]:
    """The variables in the output slots of `SLOTS`; AssertionError for what is no op."""
    assert isinstance(op, IrNode | Operator), "op must be an IrOpNode or an Operator"
    slots = SLOTS[op.name() if isinstance(op, IrNode) else op.type][1]
    return [name for slot in slots for name in op.output(slot)]


def op_nodes(graph: IrGraph) -> list[IrOpNode]:
    """The ops of a graph in order of creation."""
    return sorted(graph.all_op_nodes(), key=lambda node: node.id())


def reads_no_weight(op: IrOpNode) -> bool:
    """Whether no input of an op outlives a run."""
    nodes = {node.name(): node for node in op.inputs if isinstance(node, IrVarNode)}
    return not any(nodes[name].persistable() for name in input_names(op))


def is_skipped(op: IrOpNode, patterns: str | Sequence[str] | None) -> bool:
    """Whether the name scope of an op contains one of some patterns."""
    scope = str(op.op().attr("op_namescope")) if op.op().has_attr("op_namescope") else ""
    wanted = [patterns] if isinstance(patterns, str) else patterns or ()
    return any(pattern in scope for pattern in wanted)


def remove_unused_variables(graph: IrGraph) -> None:
    """Remove the variables that no op reads or writes."""
    used = {node for op in graph.all_op_nodes() for node in (*op.inputs, *op.outputs)}
    graph.safe_remove_nodes([node for node in graph.all_var_nodes() if node not in used])
