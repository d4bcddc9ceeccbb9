"""`QuantizationTransformPass`: fake quantization of the inputs of ops that have weights.

Reference: quantization_pass.py of fluid.contrib.slim.quantization of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fluid.compat.graphs import IrGraph, IrNode, IrOpNode, IrVarNode
from fluid.contrib.slim.quantization.fake_quantization import FakeQuantization
from fluid.contrib.slim.quantization.insertion import StateNodes
from fluid.contrib.slim.quantization.quantized_slots import is_skipped, op_nodes, reads_no_weight
from fluid.contrib.slim.quantization.user_functions import UserFunctions
from fluid.executor import Executor
from fluid.framework import Variable
from fluid.optimizer import Optimizer
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["QuantizationTransformPass"]

QUANTIZATION_TYPES = ("abs_max", "channel_wise_abs_max", "range_abs_max", "moving_average_abs_max")
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")

Change: TypeAlias = Callable[[Variable], Variable]
"""A function that appends ops which change a variable; returns the result."""


class QuantizationTransformPass:
    """Quantizes and dequantizes the inputs of convolutions and products, also of their gradients.

    Activations are quantized by `activation_quantize_type`: "abs_max", by the largest magnitude of
    the batch; "range_abs_max", of the last `window_size` batches; "moving_average_abs_max", by
    their moving average with the rate `moving_rate`. Weights by `weight_quantize_type`, also
    "channel_wise_abs_max". State is created in `scope` and on `place`. Ops in a `name_scope` that
    contains `skip_pattern` are left alone, and products without weights.

    `weight_quantize_func` and `act_quantize_func` replace the quantization, the `preprocess`
    functions precede it: they take a variable and return another. For training they need
    `optimizer_func`, which returns an optimizer of their own parameters, and `executor`.

    Raises ValueError for an unknown type of quantization, AssertionError for op types other than
    conv2d, depthwise_conv2d, mul and matmul.
    """

    _supported_quantizable_op_type: Sequence[str] = (*CONVOLUTIONS, "mul", "matmul")

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
        skip_pattern: str | Sequence[str] | None = ("skip_quant",),
        quantizable_op_type: Sequence[str] = (*CONVOLUTIONS, "mul"),
        weight_quantize_func: Change | None = None,
        act_quantize_func: Change | None = None,
        weight_preprocess_func: Change | None = None,
        act_preprocess_func: Change | None = None,
        optimizer_func: Callable[[], Optimizer] | None = None,
        executor: Executor | None = None,
    ) -> None:
        _check_types(activation_quantize_type, weight_quantize_type)
        for kind in quantizable_op_type:
            supported = kind in self._supported_quantizable_op_type
            assert supported, f"{kind} is not supported for quantization."
        self._scope, self._place = scope, place
        self._bits = {True: weight_bits, False: activation_bits}
        self._types = {True: weight_quantize_type, False: activation_quantize_type}
        self._window_size, self._moving_rate = window_size, moving_rate
        self._skip_pattern = skip_pattern
        self._ops = tuple(quantizable_op_type)
        self._quantizations = {True: weight_quantize_func, False: act_quantize_func}
        self._preprocessings = {True: weight_preprocess_func, False: act_preprocess_func}
        self._user_functions = (scope, executor, optimizer_func)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it. AssertionError for what is no IrGraph."""
        assert isinstance(graph, IrGraph), "graph must be the instance of IrGraph."  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        states = StateNodes(graph, self._scope, self._place)
        inserted = FakeQuantization(graph, states, self._window_size, self._moving_rate)
        if not graph.is_test() and "range_abs_max" in self._types.values():
            inserted.add_counter()
        ops = op_nodes(graph)
        forward = [op for op in ops if op.name() in self._ops]
        backward = [op for op in ops if op.name().removesuffix("_grad") in self._ops]
        for op in {*forward, *backward}:
            if is_skipped(op, self._skip_pattern):
                op.set_attr("skip_quant", True)
        rewriting = _Rewriting(graph, inserted, UserFunctions(graph, *self._user_functions))
        for op in forward:
            if not _stays(op):
                self._quantize_inputs(op, rewriting)
        for op in backward:
            if op not in forward:
                rewriting.read_dequantized(op)
        graph.resolve_hazard()
        return graph

    def _quantize_inputs(self, op: IrOpNode, rewriting: _Rewriting) -> None:
        op.set_attr("quantization_type", "qat_with_weight")
        for node in op.inputs:
            if node.name() in op.input_arg_names() and isinstance(node, IrVarNode):
                self._quantize(op, node, rewriting)

    def _quantize(self, op: IrOpNode, node: IrVarNode, rewriting: _Rewriting) -> None:
        """Let an op read a value quantized and dequantized, or changed by the user's function."""
        name, value = node.name(), node
        if name not in rewriting.dequantized:
            if name in rewriting.changed:
                return
            is_weight = name in rewriting.persistable
            if (function := self._preprocessings[is_weight]) is not None:
                value = rewriting.functions.insert(function, value, op)
            if (function := self._quantizations[is_weight]) is not None:
                rewriting.functions.insert(function, value, op)
                rewriting.changed.add(name)
                return
            kind, bits = self._types[is_weight], self._bits[is_weight]
            rewriting.dequantized[name] = rewriting.inserted.round_trip(
                value, name, kind, bits, op.name() in CONVOLUTIONS
            )
        rewriting.graph.update_input_link(value, rewriting.dequantized[name], op)


class _Rewriting:
    """The state of one `apply`: dequantized values by name, and names that functions changed."""

    def __init__(
        self, graph: IrGraph, inserted: FakeQuantization, functions: UserFunctions
    ) -> None:
        self.graph, self.inserted, self.functions = graph, inserted, functions
        self.persistable = {node.name() for node in graph.all_persistable_nodes()}
        self.dequantized: dict[str, IrNode] = {}
        self.changed: set[str] = set()

    def read_dequantized(self, op: IrOpNode) -> None:
        """Let a gradient op read what the forward op reads."""
        for node in op.inputs:
            if node.name() in op.input_arg_names() and node.name() in self.dequantized:
                self.graph.update_input_link(node, self.dequantized[node.name()], op)


def _stays(op: IrOpNode) -> bool:
    """Whether an op is not quantized: in a skipped scope, without weights, or quantized already."""
    described = op.op()
    if described.has_attr("skip_quant") and described.attr("skip_quant"):
        return True
    if op.name() in ("mul", "matmul") and reads_no_weight(op):
        return True
    kind = "quantization_type"
    return described.has_attr(kind) and described.attr(kind) == "qat_without_weight"


def _check_types(activation: str, weight: str) -> None:
    assert activation != "channel_wise_abs_max", (
        "The activation quantization type does not support 'channel_wise_abs_max'."
    )
    known = ", ".join(map(repr, QUANTIZATION_TYPES))
    if activation not in QUANTIZATION_TYPES:
        raise ValueError(f"Unknown activation_quantize_type : {activation!r}; expected {known}")
    if weight not in QUANTIZATION_TYPES:
        raise ValueError(f"Unknown weight_quantize_type: {weight!r}; expected {known}")
