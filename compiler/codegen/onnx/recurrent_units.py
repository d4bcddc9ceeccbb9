"""Single steps of LSTM and GRU, which programs unroll or put into loops."""

from __future__ import annotations

from typing import Any

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes
from compiler.codegen.onnx.recurrent import activated, gru_weights
from compiler.ir.graph import Op

KINDS = ("identity", "sigmoid", "tanh", "relu")
"""The activations of `gru_unit`, by number."""


@converts("lstm_unit")
def lstm_unit(nodes: Nodes, op: Op) -> None:
    """The gates are input, forget, output, candidate."""
    defn: Any = op.defn
    cell = nodes.input(op, "C_prev")
    inlet, forget, outlet, candidate = split(nodes, nodes.input(op, "X"), 4)
    bias = nodes.scalar(defn.forget_bias, op["X"].type.dtype)
    inlet, forget, outlet = (
        nodes.add("Sigmoid", [gate]) for gate in (inlet, nodes.add("Add", [forget, bias]), outlet)
    )
    entering = nodes.add("Mul", [inlet, nodes.add("Tanh", [candidate])])
    left = nodes.add("Mul", [forget, cell])
    new = nodes.add("Add", [left, entering], nodes.output(op, "C"))
    nodes.add("Mul", [outlet, nodes.add("Tanh", [new])], nodes.output(op, "H"))


@converts("gru_unit")
def gru_unit(nodes: Nodes, op: Op) -> None:
    """The gates are update, reset, candidate; Weight and Bias are as in `gru`."""
    defn: Any = op.defn
    before, entered = nodes.input(op, "HiddenPrev"), nodes.input(op, "Input")
    width = int(str(op["Weight"].type.shape[0]))
    if bias := nodes.optional(op, "Bias"):
        entered = nodes.add("Add", [entered, bias])
    weights = gru_weights(nodes, nodes.input(op, "Weight"), width)
    update, reset, candidate = split(nodes, entered, 3)
    product = split(nodes, nodes.add("MatMul", [before, weights[0]]), 2)
    kind = KINDS[int(defn.gate_activation)]
    update, reset = (
        activated(nodes, nodes.add("Add", [gate, part]), kind)
        for gate, part in zip((update, reset), product, strict=True)
    )
    kept = nodes.add("Mul", [reset, before], nodes.output(op, "ResetHiddenPrev"))
    candidate = nodes.add("Add", [candidate, nodes.add("MatMul", [kept, weights[1]])])
    candidate = activated(nodes, candidate, KINDS[int(defn.activation)])
    nodes.add("Concat", [update, reset, candidate], nodes.output(op, "Gate"), axis=1)
    first, second = (before, candidate) if not defn.origin_mode else (candidate, before)
    change = nodes.add("Mul", [update, nodes.add("Sub", [second, first])])
    nodes.add("Add", [first, change], nodes.output(op, "Hidden"))


def split(nodes: Nodes, name: str, count: int) -> list[str]:
    """Equal parts of the columns of a value."""
    parts = [nodes.temporary("gate") for _ in range(count)]
    nodes.add_all("Split", [name], parts, axis=1)
    return parts
