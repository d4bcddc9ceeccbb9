"""Passes over activations: quantization of ops without weights, and scales of results.

Reference: quantization_pass.py of fluid.contrib.slim.quantization of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid.compat.graphs import IrGraph, IrNode, IrOpNode, IrVarNode
from fluid.contrib.slim.quantization.insertion import (
    FIRST_SCALE,
    StateNodes,
    insert_op,
    moving_average_state,
    new_value,
    read,
)
from fluid.contrib.slim.quantization.quantized_slots import (
    OUT_SCALE_OPS,
    input_names,
    is_skipped,
    op_nodes,
    output_names,
    reads_no_weight,
)
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["AddQuantDequantPass", "OutScaleForInferencePass", "OutScaleForTrainingPass"]


class AddQuantDequantPass:
    """Quantizes and dequantizes the inputs of ops without weights, by a moving average.

    `is_full_quantized` takes all supported op types in place of `quantizable_op_type`. Ops in a
    `name_scope` that contains `skip_pattern` are left alone, and ops that read weights.

    Raises AssertionError for op types that are not supported, and without a scope or a place.
    """

    _supported_quantizable_op_type: Sequence[str] = (
        "pool2d elementwise_add concat softmax argmax transpose equal gather greater_equal "
        "greater_than less_equal less_than mean not_equal reshape reshape2 bilinear_interp "
        "nearest_interp trilinear_interp slice squeeze elementwise_sub mul matmul relu relu6 "
        "leaky_relu tanh swish"
    ).split()
    _activation_type: Sequence[str] = ("relu", "relu6", "leaky_relu", "tanh", "swish")

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        moving_rate: float = 0.9,
        quant_bits: int = 8,
        skip_pattern: str | Sequence[str] | None = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("elementwise_add", "pool2d"),
        is_full_quantized: bool = False,
    ) -> None:
        supported = self._supported_quantizable_op_type
        self._ops = tuple(supported if is_full_quantized else quantizable_op_type)
        for kind in self._ops:
            assert kind in supported, f"{kind} is not supported for quantization."
        assert scope is not None, "scope must not be None."
        assert place is not None, "place must not be None."
        self._scope, self._place = scope, place
        self._moving_rate, self._bits = moving_rate, quant_bits
        self._skip_pattern = skip_pattern

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it. AssertionError for what is no IrGraph."""
        assert isinstance(graph, IrGraph), "graph must be the instance of IrGraph."  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        rounded: dict[str, IrNode] = {}
        ops = op_nodes(graph)
        for op in ops:
            if op.name() in self._ops and not self._stays(op):
                self._round_inputs(graph, op, rounded)
        for op in ops:
            if op.name().endswith("_grad") and op.name().removesuffix("_grad") in self._ops:
                for name in [name for name in op.input_arg_names() if name in rounded]:
                    source = next((node for node in op.inputs if node.name() == name), None)
                    if source is not None:
                        graph.update_input_link(source, rounded[name], op)
        graph.resolve_hazard()
        return graph

    def _stays(self, op: IrOpNode) -> bool:
        described, name = op.op(), "quantization_type"
        is_quantized = described.has_attr(name) and described.attr(name) == "qat_with_weight"
        return is_skipped(op, self._skip_pattern) or is_quantized or not reads_no_weight(op)

    def _round_inputs(self, graph: IrGraph, op: IrOpNode, rounded: dict[str, IrNode]) -> None:
        op.set_attr("quantization_type", "qat_without_weight")
        op.set_attr("activation_bits", self._bits)
        for name in dict.fromkeys(input_names(op)):
            value = next(node for node in op.inputs if node.name() == name)
            assert isinstance(value, IrVarNode)
            if name not in rounded:
                rounded[name] = self._rounded(graph, value)
            graph.update_input_link(value, rounded[name], op)

    def _rounded(self, graph: IrGraph, value: IrVarNode) -> IrVarNode:
        """Insert the quantization and dequantization of a value; returns the result."""
        states = StateNodes(graph, self._scope, self._place)
        name = f"{value.name()}.quant_dequant"
        result = new_value(graph, name, value)
        before = states.add(f"{name}.scale", value, np.array([FIRST_SCALE]))
        inputs = {"X": value, "InScale": before}
        outputs = {"Out": result, "OutScale": states.next_value(before)}
        if not graph.is_test():
            names = "quant_dequant.state", "quant_dequant.accum"
            state_inputs, state_outputs = moving_average_state(states, value, *names)
            inputs, outputs = inputs | state_inputs, outputs | state_outputs
        attrs = {
            "bit_length": self._bits,
            "moving_rate": self._moving_rate,
            "is_test": graph.is_test(),
        }
        kind = "fake_quantize_dequantize_moving_average_abs_max"
        insert_op(graph, kind, attrs, inputs, outputs)
        return result


class OutScaleForTrainingPass:
    """Computes the moving average of the largest magnitude of results, as `<name>@scale`.

    It is state in `scope` and on `place`; `moving_rate` is the rate of the average.
    """

    def __init__(
        self, scope: Scope | None = None, place: Place | None = None, moving_rate: float = 0.9
    ) -> None:
        self._scope, self._place, self._moving_rate = scope, place, moving_rate

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it. AssertionError for what is no IrGraph."""
        assert isinstance(graph, IrGraph), "graph must be the instance of IrGraph."  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        for op in [op for op in op_nodes(graph) if op.name() in OUT_SCALE_OPS]:
            for name in output_names(op):
                value = next(node for node in op.outputs if node.name() == name)
                assert isinstance(value, IrVarNode)
                self._track(graph, value)
        graph.resolve_hazard()
        return graph

    def _track(self, graph: IrGraph, value: IrVarNode) -> None:
        states = StateNodes(graph, self._scope, self._place)
        inputs = {"X": value}
        outputs = {
            "Out": states.next_value(value),
            "OutScale": states.add(f"{value.name()}@scale", value, np.ones(1)),
        }
        if not graph.is_test():
            before, after = moving_average_state(states, value, "scale_state@", "scale_accum@")
            inputs, outputs = inputs | before, outputs | after
        attrs = {"moving_rate": self._moving_rate, "is_test": graph.is_test()}
        insert_op(graph, "moving_average_abs_max_scale", attrs, inputs, outputs)


class OutScaleForInferencePass:
    """Writes the scales of `OutScaleForTrainingPass` into attributes `out_threshold` of ops."""

    def __init__(self, scope: Scope | None = None) -> None:
        self._scope = scope

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrite a graph, in place; returns it.

        Raises AssertionError for what is no IrGraph, ValueError where the scope lacks a scale.
        """
        assert isinstance(graph, IrGraph), "graph must be the instance of IrGraph."  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        assert self._scope is not None, "The scope cannot be set None."
        for op in [op for op in op_nodes(graph) if op.name() in OUT_SCALE_OPS]:
            (name,) = output_names(op)
            op.set_attr("out_threshold", float(read(self._scope, f"{name}@scale").reshape(-1)[0]))
        graph.resolve_hazard()
        return graph
