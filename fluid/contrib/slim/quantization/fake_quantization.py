"""Insertion of fake quantization and dequantization behind the values of a graph.

`X.quantized` has levels, `X.quantized.dequantized` the values that they stand for, `X.scale` the
largest magnitude.
"""

from __future__ import annotations

import numpy as np

from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.compat.graphs import IrGraph, IrVarNode
from fluid.contrib.slim.quantization.insertion import (
    FIRST_SCALE,
    StateNodes,
    insert_op,
    moving_average_state,
    new_value,
)

__all__ = ["FakeQuantization"]

COUNTER = "@STEP_COUNTER@"


@dataclass
class FakeQuantization:
    """Inserts fake quantization into one graph; `counter` is the number of steps in training."""

    graph: IrGraph
    states: StateNodes
    window_size: int
    moving_rate: float
    counter: IrVarNode | None = None

    def add_counter(self) -> None:
        """Find the counter of steps or add one that every step increments."""
        existing = [node for node in self.graph.all_var_nodes() if node.name() == COUNTER]
        if existing:
            self.counter = max(existing, key=lambda node: node.id())
            return
        before = self.states.add_counter(COUNTER)
        self.counter = self.states.next_value(before)
        insert_op(self.graph, "increment", {"step": 1.0}, {"X": before}, {"Out": self.counter})

    def round_trip(
        self, value: IrVarNode, name: str, kind: str, bits: int, is_convolution: bool
    ) -> IrVarNode:
        """Quantize and dequantize a value in one of the four ways; returns the result.

        Weights of products have one scale where those of convolutions have one a channel.
        """
        if kind == "channel_wise_abs_max" and is_convolution:
            return self._by_channels(value, name, bits)
        quantized, scale = self._quantized(
            value, name, "abs_max" if kind == "channel_wise_abs_max" else kind, bits
        )
        result = new_value(self.graph, f"{quantized.name()}.dequantized", value)
        insert_op(
            self.graph,
            "fake_dequantize_max_abs",
            {"max_range": float(2 ** (bits - 1) - 1)},
            {"X": quantized, "Scale": scale},
            {"Out": result},
        )
        return result

    def _by_channels(self, value: IrVarNode, name: str, bits: int) -> IrVarNode:
        quantized = new_value(self.graph, f"{name}.quantized", value)
        scale = new_value(self.graph, f"{name}.scale", value, value.shape()[:1])
        outputs = {"Out": quantized, "OutScale": scale}
        kind = "fake_channel_wise_quantize_abs_max"
        insert_op(self.graph, kind, {"bit_length": bits}, {"X": value}, outputs)
        result = new_value(self.graph, f"{quantized.name()}.dequantized", value)
        insert_op(
            self.graph,
            "fake_channel_wise_dequantize_max_abs",
            {"quant_bits": [bits]},
            {"X": quantized, "Scales": [scale]},
            {"Out": result},
        )
        return result

    def _quantized(
        self, value: IrVarNode, name: str, kind: str, bits: int
    ) -> tuple[IrVarNode, IrVarNode]:
        """The levels of a value, and their scale."""
        quantized = new_value(self.graph, f"{name}.quantized", value)
        if kind == "abs_max":
            scale = new_value(self.graph, f"{name}.scale", value, [1])
            outputs = {"Out": quantized, "OutScale": scale}
            attrs = {"bit_length": bits}
            insert_op(self.graph, "fake_quantize_abs_max", attrs, {"X": value}, outputs)
            return quantized, scale
        before = self.states.add(f"{name}.scale", value, np.array([FIRST_SCALE]))
        scale = self.states.next_value(before)
        inputs = {"X": value, "InScale": before}
        outputs = {"Out": quantized, "OutScale": scale}
        if kind == "range_abs_max":
            self._insert_windowed(inputs, outputs, bits)
        else:
            self._insert_moving(inputs, outputs, bits)
        return quantized, scale

    def _insert_windowed(
        self, inputs: dict[str, IrVarNode], outputs: dict[str, IrVarNode], bits: int
    ) -> None:
        is_test = self.graph.is_test()
        if not is_test:
            assert self.counter is not None
            window = np.zeros(self.window_size)
            inputs["Iter"] = self.counter
            outputs["OutScales"] = self.states.add(
                unique_name.generate("scales"), inputs["X"], window
            )
        attrs = {"window_size": self.window_size, "bit_length": bits, "is_test": is_test}
        insert_op(self.graph, "fake_quantize_range_abs_max", attrs, inputs, outputs)

    def _insert_moving(
        self, inputs: dict[str, IrVarNode], outputs: dict[str, IrVarNode], bits: int
    ) -> None:
        is_test = self.graph.is_test()
        if not is_test:
            before, after = moving_average_state(self.states, inputs["X"], "state", "accum")
            inputs, outputs = inputs | before, outputs | after
        attrs = {"bit_length": bits, "moving_rate": self.moving_rate, "is_test": is_test}
        insert_op(self.graph, "fake_quantize_moving_average_abs_max", attrs, inputs, outputs)
