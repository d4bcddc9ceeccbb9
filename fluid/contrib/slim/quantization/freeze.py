"""Passes that prepare a quantized graph for inference: levels as weights, int8, for mobile devices.

Reference: quantization_pass.py of fluid.contrib.slim.quantization of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array
from fluid import unique_name
from fluid.compat.graphs import IrGraph, IrNode, IrOpNode, IrVarNode
from fluid.contrib.slim.quantization.insertion import (
    StateNodes,
    insert_op,
    new_value,
    read,
    write,
)
from fluid.contrib.slim.quantization.quantized_slots import op_nodes, remove_unused_variables
from fluid.contrib.slim.quantization.transform import CONVOLUTIONS
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["ConvertToInt8Pass", "QuantizationFreezePass", "TransformForMobilePass"]

QUANTIZE_OPS = (
    "fake_quantize_abs_max", "fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max",
    "fake_channel_wise_quantize_abs_max",
)  # fmt: skip
DEQUANTIZE_OPS = ("fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs")
SUFFIXES = (".quantized.dequantized", ".quantized", ".dequantized", ".scale")


class QuantizationFreezePass:
    """Lets quantized ops compute with levels, and dequantizes their results.

    Weights in `scope` become levels, in place; activations stay quantized before the op. The bits
    and `weight_quantize_type` are those of the `QuantizationTransformPass`; `quantizable_op_type`
    has no effect. AssertionError without a scope or a place.
    """

    def __init__(
        self,
        scope: Scope | None,
        place: Place | None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        weight_quantize_type: str = "abs_max",
        quantizable_op_type: Sequence[str] | None = None,
    ) -> None:
        assert scope is not None, "The scope cannot be set None."
        assert place is not None, "The place cannot be set None."
        self._scope, self._place = scope, place
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._weight_type = weight_quantize_type

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it."""
        frozen = _Freezing(graph)
        for op in op_nodes(graph):
            if op.name() in QUANTIZE_OPS:
                self._freeze_quantization(op, frozen)
        for op in op_nodes(graph):
            if op.name() in DEQUANTIZE_OPS:
                frozen.bypass(op)
        ops = op_nodes(graph)
        for op in ops:
            if _is_quantized(op):
                self._dequantize_result(op, frozen)
        for op in ops:
            for node in op.inputs:
                if node in frozen.results:
                    graph.update_input_link(node, frozen.results[node], op)
        remove_unused_variables(graph)
        graph.resolve_hazard()
        return graph

    def _freeze_quantization(self, op: IrOpNode, frozen: _Freezing) -> None:
        """Quantize a weight in the scope and remove the op, or note the scale of an activation."""
        name = op.input("X")[0]
        name = frozen.graph.out_node_mapping_table.get(name, name)
        if name not in frozen.persistable:
            scale = op.output("OutScale")[0]
            frozen.scales[name] = next(node for node in op.outputs if node.name() == scale)
            return
        weight = read(self._scope, name)
        scale = frozen.weight_scales[name] = self._weight_scale(weight, op)
        frozen.bypass(op)
        write(self._scope, self._place, name, _levels(weight, scale, self._weight_bits))

    def _weight_scale(self, weight: Array, op: IrOpNode) -> Array:
        """The largest magnitude of a weight, [] or for each channel of a convolution [channels]."""
        if self._weight_type == "channel_wise_abs_max" and weight.ndim == 4:
            return np.abs(weight).max(axis=(1, 2, 3))
        if self._weight_type in ("abs_max", "channel_wise_abs_max"):
            return np.asarray(np.abs(weight).max())
        return read(self._scope, op.output("OutScale")[0]).reshape(-1)[0:1].reshape(())

    def _dequantize_result(self, op: IrOpNode, frozen: _Freezing) -> None:
        """Insert the dequantization of the result of an op that computes with levels."""
        weight_scales, activation_scale = _take_levels(op, frozen)
        outputs = op.output_arg_names()
        if len(outputs) != 1:
            raise ValueError(f"Only support one output, but op {op.name()} has {len(outputs)}.")
        result = next(node for node in op.outputs if node.name() == outputs[0])
        assert isinstance(result, IrVarNode)
        value = new_value(frozen.graph, f"{result.name()}.dequantized", result)
        if self._weight_type == "channel_wise_abs_max" and op.name() in CONVOLUTIONS:
            self._by_channel(frozen.graph, result, weight_scales[-1], activation_scale, value)
        else:
            self._by_product(frozen.graph, result, weight_scales, activation_scale, value)
        frozen.results[result] = value

    def _by_product(
        self,
        graph: IrGraph,
        result: IrVarNode,
        weight_scales: list[Array],
        scale: IrVarNode,
        value: IrVarNode,
    ) -> None:
        top = 2 ** (self._weight_bits - 1) - 1
        factor = np.prod([top / float(weight) for weight in weight_scales])
        attrs = {"max_range": float(factor) * (2 ** (self._activation_bits - 1) - 1)}
        inputs = {"X": result, "Scale": scale}
        insert_op(graph, "fake_dequantize_max_abs", attrs, inputs, {"Out": value})

    def _by_channel(
        self,
        graph: IrGraph,
        result: IrVarNode,
        weight_scale: Array,
        scale: IrVarNode,
        value: IrVarNode,
    ) -> None:
        states = StateNodes(graph, self._scope, self._place)
        channels = states.add(unique_name.generate("channel_scale"), result, weight_scale)
        attrs = {"quant_bits": [self._weight_bits, self._activation_bits]}
        inputs = {"X": result, "Scales": [channels, scale]}
        kind = "fake_channel_wise_dequantize_max_abs"
        insert_op(graph, kind, attrs, inputs, {"Out": value})


def _levels(weight: Array, scale: Array, bits: int) -> Array:
    """The levels of a weight by its scale, [] or [channels], in its own dtype."""
    by_channel = scale.reshape((*scale.shape, *[1] * (weight.ndim - 1))) if scale.ndim else scale
    levels: Array = np.empty_like(weight)
    np.round(weight / by_channel * (2 ** (bits - 1) - 1), out=levels)
    return levels


class _Freezing:
    """The state of one `apply`: scales by variable, what replaces values and results."""

    def __init__(self, graph: IrGraph) -> None:
        self.graph = graph
        self.persistable = {node.name() for node in graph.all_persistable_nodes()}
        self.scales: dict[str, IrNode] = {}
        self.weight_scales: dict[str, Array] = {}
        self.levels: dict[IrNode, IrNode] = {}
        self.results: dict[IrNode, IrNode] = {}

    def bypass(self, op: IrOpNode) -> None:
        """Remove an op; what it wrote is replaced by what it read."""
        written = next(node for node in op.outputs if node.name() == op.output("Out")[0])
        source = next(node for node in op.inputs if node.name() == op.input("X")[0])
        self.levels[written] = self.levels.get(source, source)
        self.graph.safe_remove_nodes(op)


def _take_levels(op: IrOpNode, frozen: _Freezing) -> tuple[list[Array], IrVarNode]:
    """Let an op read levels; returns the scales of its weights and that of its activation.

    Raises ValueError for an op without a quantized activation.
    """
    weight_scales: list[Array] = []
    activation: IrNode | None = None
    for node in op.inputs:
        name = node.name()
        if name not in op.input_arg_names():
            continue
        if node in frozen.levels:
            frozen.graph.update_input_link(node, frozen.levels[node], op)
        original = original_name(name)
        if original in frozen.persistable:
            weight_scales.append(frozen.weight_scales[original])
        else:
            activation = frozen.scales[original]
    if not isinstance(activation, IrVarNode):
        raise ValueError(f"op {op.name()} reads no quantized activation")
    return weight_scales, activation


def original_name(name: str) -> str:
    """The name of a variable before quantization.

    >>> original_name("x.quantized.dequantized"), original_name("x")
    ('x', 'x')
    """
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


def _is_quantized(op: IrOpNode) -> bool:
    """Whether a QuantizationTransformPass quantized an op with weights."""
    name = "quantization_type"
    return op.op().has_attr(name) and op.op().attr(name) == "qat_with_weight"


class ConvertToInt8Pass:
    """Lets frozen ops read weights of type int8, as `<name>.int8`, which `scope` receives.

    `quantizable_op_type` has no effect. AssertionError without a scope or a place.
    """

    def __init__(
        self,
        scope: Scope | None,
        place: Place | None,
        quantizable_op_type: Sequence[str] | None = None,
    ) -> None:
        assert scope is not None, "The scope cannot be set None."
        assert place is not None, "The place cannot be set None."
        self._scope, self._place = scope, place

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it."""
        persistable = {node.name() for node in graph.all_persistable_nodes()}
        converted: dict[str, IrVarNode] = {}
        for op in [op for op in op_nodes(graph) if _is_quantized(op)]:
            for node in op.inputs:
                if node.name() in persistable and isinstance(node, IrVarNode):
                    if node.name() not in converted:
                        converted[node.name()] = self._converted(graph, node)
                    graph.update_input_link(node, converted[node.name()], op)
        remove_unused_variables(graph)
        graph.resolve_hazard()
        return graph

    def _converted(self, graph: IrGraph, node: IrVarNode) -> IrVarNode:
        name = f"{node.name()}.int8"
        write(self._scope, self._place, name, read(self._scope, node.name()).astype(np.int8))
        return graph.create_persistable_node(name, node.type(), node.shape(), VarDesc.VarType.INT8)


class TransformForMobilePass:
    """Renames the ops of fake quantization to `quantize` and `dequantize`, for Paddle Mobile.

    The program can be saved; it cannot run here.
    """

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a frozen graph, in place; returns it."""
        for op in op_nodes(graph):
            if op.name() in QUANTIZE_OPS:
                op.set_type("quantize")
            elif op.name() in DEQUANTIZE_OPS:
                op.set_type("dequantize")
        graph.resolve_hazard()
        return graph
