"""LSTM and GRU over sequences, and decoding of linear-chain CRFs."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported, declared
from compiler.codegen.onnx.sequences import SequenceRows, column, counted, part
from compiler.ir.graph import Op
from compiler.ir.types import DType

ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}
LARGEST = np.iinfo(np.int64).max


def activation(name: str) -> str:
    """ONNX's name of an activation. Raises Unsupported for one that its layers lack."""
    if name not in ACTIVATIONS:
        raise Unsupported(f"a recurrent layer with the activation {name}")
    return ACTIVATIONS[name]


def selected(nodes: Nodes, name: str, axis: int, places: list[int]) -> str:
    """Entries of an axis in another order."""
    return nodes.add("Gather", [name, nodes.constant(places)], axis=axis)


def gates(order: str, wanted: str, width: int) -> list[int]:
    """The columns of `wanted` gates among those in `order`.

    >>> gates("cifo", "iofc", 2)
    [2, 3, 6, 7, 4, 5, 0, 1]
    """
    return [order.index(gate) * width + column for gate in wanted for column in range(width)]


def leading(nodes: Nodes, name: str) -> str:
    """A value with an axis of one direction in front."""
    return nodes.add("Unsqueeze", [name, nodes.constant([0])])


def steps_of(nodes: Nodes, rows: SequenceRows, name: str, dtype: DType) -> str:
    """Rows of sequences as [steps, N, width]."""
    return nodes.add("Transpose", [rows.padded(name, 2, dtype, 0)], perm=[1, 0, 2])


def rows_of(nodes: Nodes, rows: SequenceRows, steps: str, width: int, out: str) -> None:
    """The rows of a result [steps, 1, N, width]."""
    flat = nodes.add("Squeeze", [steps, nodes.constant([1])])
    rows.unpadded(nodes.add("Transpose", [flat], perm=[1, 0, 2]), [width], out)


@converts("lstm")
def lstm(nodes: Nodes, op: Op) -> None:
    """The input has been multiplied by its weights: here they only reorder the gates.

    The gates are candidate, input, forget, output; in ONNX input, output, forget, candidate.
    """
    defn: Any = op.defn
    width = int(str(op["Weight"].type.shape[0]))
    order, dtype = gates("cifo", "iofc", width), op["Input"].type.dtype
    rows = SequenceRows.of(nodes, op, "Input")
    weight = nodes.add("Transpose", [nodes.input(op, "Weight")], perm=[1, 0])
    bias = nodes.add("Reshape", [nodes.input(op, "Bias"), nodes.constant([-1])])
    zeros = nodes.constant(np.zeros(4 * width, dtype.numpy))
    both = nodes.add("Concat", [selected(nodes, bias, 0, order), zeros], axis=0)
    peephole = ""
    if defn.use_peepholes:  # the bias goes on with weights of input, forget and output
        places = [4 * width + place for place in gates("ifo", "iof", width)]
        peephole = leading(nodes, selected(nodes, bias, 0, places))
    states = [
        leading(nodes, nodes.input(op, slot)) if op.inputs.get(slot) else ""
        for slot in ("H0", "C0")
    ]
    names = [
        steps_of(nodes, rows, nodes.input(op, "Input"), dtype),
        nodes.constant(np.eye(4 * width, dtype=dtype.numpy)[order][None]),
        leading(nodes, selected(nodes, weight, 0, order)), leading(nodes, both),
        nodes.cast(rows.lengths, DType.INT32), *states, peephole,
    ]  # fmt: skip
    kinds = (defn.gate_activation, defn.candidate_activation, defn.cell_activation)
    result = nodes.add(
        "LSTM", names, hidden_size=width, direction=direction(op),
        activations=[activation(str(kind)) for kind in kinds],
    )  # fmt: skip
    rows_of(nodes, rows, result, width, nodes.output(op, "Hidden"))


def direction(op: Op) -> str:
    """Whether the steps begin at the end of each sequence."""
    defn: Any = op.defn
    return "reverse" if defn.is_reverse else "forward"


@converts("gru")
def gru(nodes: Nodes, op: Op) -> None:
    """H = (1 - u) h' + u c; in ONNX z h' + (1 - z) c, so that z = 1 - u = sigmoid of the negative.

    The weights of update and reset gates are one matrix, those of the candidate follow it.
    """
    defn: Any = op.defn
    width = int(str(op["Weight"].type.shape[0]))
    dtype, rows = op["Input"].type.dtype, SequenceRows.of(nodes, op, "Input")
    if not defn.origin_mode and defn.gate_activation != "sigmoid":
        raise Unsupported(f"gates of a GRU with the activation {defn.gate_activation}")
    sign = np.ones(3 * width, dtype.numpy)
    if not defn.origin_mode:
        sign[:width] = -1
    flat = nodes.add("Reshape", [nodes.input(op, "Weight"), nodes.constant([-1])])
    pieces: list[str] = []
    for start, end, columns in ((0, 2 * width**2, 2 * width), (2 * width**2, LARGEST, width)):
        shape = nodes.constant([width, columns])
        square = nodes.add("Reshape", [part(nodes, flat, start, end), shape])
        pieces.append(nodes.add("Transpose", [square], perm=[1, 0]))
    weight = nodes.add("Concat", pieces, axis=0)
    weight = nodes.add("Mul", [weight, nodes.constant(sign[:, None])])
    names = [
        steps_of(nodes, rows, nodes.input(op, "Input"), dtype),
        nodes.constant(np.diag(sign)[None]), leading(nodes, weight),
    ]  # fmt: skip
    bias = ""
    if op.inputs.get("Bias"):
        added = nodes.add("Reshape", [nodes.input(op, "Bias"), nodes.constant([-1])])
        added = nodes.add("Mul", [added, nodes.constant(sign)])
        zeros = nodes.constant(np.zeros(3 * width, dtype.numpy))
        bias = leading(nodes, nodes.add("Concat", [added, zeros], axis=0))
    state = leading(nodes, nodes.input(op, "H0")) if op.inputs.get("H0") else ""
    names += [bias, nodes.cast(rows.lengths, DType.INT32), state]
    result = nodes.add(
        "GRU", names, hidden_size=width, direction=direction(op), linear_before_reset=0,
        activations=[activation(str(defn.gate_activation)), activation(str(defn.activation))],
    )  # fmt: skip
    rows_of(nodes, rows, result, width, nodes.output(op, "Hidden"))


# ---- decoding of CRFs ----------------------------------------------------------------------------


@converts("crf_decoding")
def crf_decoding(nodes: Nodes, op: Op) -> None:
    """The best path by Viterbi: the best score of each tag step by step, then back from the end.

    The transitions' first row is the score of the first tag, the second that of the last.
    """
    if op.inputs.get("Label"):
        raise Unsupported("crf_decoding that compares with labels")
    emission, dtype = op["Emission"], op["Emission"].type.dtype
    rows = SequenceRows.of(nodes, op, "Emission")
    tags = int(str(emission.type.shape[1]))
    table = nodes.input(op, "Transition")
    first, last = part(nodes, table, 0, 1), part(nodes, table, 1, 2)
    between = leading(nodes, part(nodes, table, 2, LARGEST))
    steps = steps_of(nodes, rows, nodes.name(emission), dtype)
    is_step = nodes.add("Transpose", [rows.is_step], perm=[1, 0])
    zero = nodes.scalar(0, DType.INT64)
    is_first = nodes.add("Equal", [counted(nodes, rows.longest), zero])
    count = nodes.add("Shape", [rows.lengths])
    start = nodes.add("Expand", [first, nodes.add("Concat", [count, nodes.constant([1])], axis=0)])
    names = [nodes.temporary("scores"), nodes.temporary("origins")]
    body = _best_scores(nodes, between, tags, dtype)
    nodes.add_all("Scan", [start, steps, is_step, is_first], names, body=body, num_scan_inputs=3)
    end = nodes.add("ArgMax", [nodes.add("Add", [names[0], last])], axis=1, keepdims=0)
    path = [nodes.temporary("before"), nodes.temporary("path")]
    nodes.add_all(
        "Scan", [end, names[1]], path, body=_path_back(nodes), num_scan_inputs=1,
        scan_input_directions=[1], scan_output_directions=[1],
    )  # fmt: skip
    transposed = nodes.add("Transpose", [path[1]], perm=[1, 0])
    rows.unpadded(transposed, [1], nodes.output(op, "ViterbiPath"))


def _best_scores(nodes: Nodes, between: str, tags: int, dtype: DType) -> Any:
    """One step: the best score of each tag and the tag before it; the same where a sequence ended.

    The first step follows no other: its scores are those of the first tags.
    """
    inner = Nodes(nodes.graph, nodes)
    scores, emission, is_step, is_first = (
        inner.temporary(name) for name in ("scores", "emission", "step", "first")
    )
    paths = inner.add("Add", [column_last(inner, scores), between])
    best = inner.add("ReduceMax", [paths], axes=[1], keepdims=0)
    best = inner.add("Where", [is_first, scores, best])
    origin = inner.add("ArgMax", [paths], axis=1, keepdims=0)
    mask = column(inner, is_step)
    after = inner.add("Where", [mask, inner.add("Add", [best, emission]), scores])
    same = inner.constant(np.arange(tags)[None])
    before = inner.add("Where", [mask, origin, same])
    table = (DType.INT64, [None, tags])
    return inner.body(
        "scores",
        [
            declared(scores, dtype, [None, tags]), declared(emission, dtype, [None, tags]),
            declared(is_step, DType.BOOL, [None]), declared(is_first, DType.BOOL, []),
        ],
        [declared(after, dtype, [None, tags]), declared(before, *table)],
    )  # fmt: skip


def _path_back(nodes: Nodes) -> Any:
    """One step back: the tag of a step is reported, and that before it is the next state."""
    inner = Nodes(nodes.graph, nodes)
    tag, origin = inner.temporary("tag"), inner.temporary("origin")
    before = inner.add("GatherElements", [origin, column(inner, tag)], axis=1)
    before = inner.add("Squeeze", [before, inner.constant([1])])
    reported = inner.add("Identity", [tag])
    return inner.body(
        "path",
        [declared(tag, DType.INT64, [None]), declared(origin, DType.INT64, [None, None])],
        [declared(name, DType.INT64, [None]) for name in (before, reported)],
    )


def column_last(nodes: Nodes, name: str) -> str:
    """A value with an axis of one element at the end."""
    return nodes.add("Unsqueeze", [name, nodes.constant([-1])])
