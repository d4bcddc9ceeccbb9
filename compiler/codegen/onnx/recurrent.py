"""LSTM and GRU, and decoding of linear-chain CRFs and of beams."""

from __future__ import annotations

from math import prod
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


def activated(nodes: Nodes, name: str, kind: str) -> str:
    """A value after an activation."""
    return name if kind == "identity" else nodes.add(activation(kind), [name])


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
    """H = (1 - u) h' + u c; in ONNX z h' + (1 - z) c: z = 1 - u = sigmoid of the negative."""
    defn: Any = op.defn
    width = int(str(op["Weight"].type.shape[0]))
    dtype, rows = op["Input"].type.dtype, SequenceRows.of(nodes, op, "Input")
    if not defn.origin_mode and defn.gate_activation != "sigmoid":
        raise Unsupported(f"gates of a GRU with the activation {defn.gate_activation}")
    sign = np.ones(3 * width, dtype.numpy)
    if not defn.origin_mode:
        sign[:width] = -1
    pieces = gru_weights(nodes, nodes.input(op, "Weight"), width)
    pieces = [nodes.add("Transpose", [piece], perm=[1, 0]) for piece in pieces]
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


def gru_weights(nodes: Nodes, name: str, width: int) -> list[str]:
    """The weights of update and reset gates [width, 2 · width], and of the candidate after them."""
    flat, both = nodes.add("Reshape", [name, nodes.constant([-1])]), 2 * width**2
    pieces = (0, both, [width, 2 * width]), (both, LARGEST, [width, width])
    return [
        nodes.add("Reshape", [part(nodes, flat, start, end), nodes.constant(shape)])
        for start, end, shape in pieces
    ]


@converts("cudnn_lstm")
def layers_of_lstm(nodes: Nodes, op: Op) -> None:
    """`LSTM` layer by layer, both directions at once.

    W has the matrices of all layers and directions, then their biases; the gates of each are input,
    forget, candidate, output.
    """
    defn: Any = op.defn
    if defn.dropout_prob > 0 and not defn.is_test:
        raise Unsupported("random numbers")
    hidden, ways = int(defn.hidden_size), 2 if defn.is_bidirec else 1
    size = op["Input"].type.shape[2]
    if not isinstance(size, int):
        raise Unsupported("an LSTM whose input has an open size")
    weights = nodes.input(op, "W")
    places = defn.weight_places(size)
    below, finals = nodes.input(op, "Input"), list[list[str]]()
    for first in range(0, len(places), ways):
        inner = [_layer(nodes, weights, place, hidden) for place in places[first : first + ways]]
        joined = [nodes.add("Concat", each, axis=0) for each in zip(*inner, strict=True)]
        states = [part(nodes, nodes.input(op, slot), first, first + ways)
                  for slot in ("InitH", "InitC")]  # fmt: skip
        names = [nodes.temporary(name) for name in ("steps", "state", "cell")]
        nodes.add_all(
            "LSTM", [below, *joined, "", *states], names, hidden_size=hidden,
            direction="bidirectional" if ways > 1 else "forward",
        )  # fmt: skip
        finals.append(names[1:])
        steps = nodes.add("Transpose", [names[0]], perm=[0, 2, 1, 3])
        below = nodes.add("Reshape", [steps, nodes.constant([0, 0, hidden * ways])])
    nodes.add("Identity", [below], nodes.output(op, "Out"))
    for slot, each in zip(("last_h", "last_c"), zip(*finals, strict=True), strict=True):
        nodes.add("Concat", each, nodes.output(op, slot), axis=0)


def _layer(nodes: Nodes, weights: str, place: tuple[int, int, int], hidden: int) -> list[str]:
    """The matrices of one direction, of its input and of its state, and its two biases."""
    (start, bias, width), order = place, gates("ifco", "iofc", hidden)
    middle = start + 4 * hidden * width
    pieces = [
        (start, [4 * hidden, width], order), (middle, [4 * hidden, hidden], order),
        (bias, [8 * hidden], [*order, *(4 * hidden + gate for gate in order)]),
    ]  # fmt: skip
    result: list[str] = []
    for begin, shape, entries in pieces:
        flat = part(nodes, weights, begin, begin + prod(shape))
        square = nodes.add("Reshape", [flat, nodes.constant(shape)])
        result.append(leading(nodes, selected(nodes, square, 0, entries)))
    return result


@converts("lstmp")
def lstmp(nodes: Nodes, op: Op) -> None:
    """An LSTM whose state is a projection, by a `Scan` over padded steps.

    It begins at the last padded step where the op is reversed; states stay as they are where a
    sequence is over.
    """
    defn: Any = op.defn
    width, size = (int(str(each)) for each in op["ProjWeight"].type.shape)
    dtype, rows = op["Input"].type.dtype, SequenceRows.of(nodes, op, "Input")
    bias = nodes.add("Reshape", [nodes.input(op, "Bias"), nodes.constant([-1])])
    steps = steps_of(nodes, rows, nodes.input(op, "Input"), dtype)
    steps = nodes.add("Add", [steps, part(nodes, bias, 0, 4 * width)])
    is_step = nodes.add("Transpose", [rows.is_step], perm=[1, 0])
    count = nodes.add("Shape", [rows.lengths])
    states: list[str] = []
    for slot, columns in (("H0", size), ("C0", width)):
        shape = nodes.add("Concat", [count, nodes.constant([columns])], axis=0)
        zeros = nodes.add("Expand", [nodes.scalar(0, dtype), shape])
        states.append(nodes.optional(op, slot) or zeros)
    peepholes = [
        part(nodes, bias, start, start + width) if defn.use_peepholes else ""
        for start in range(4 * width, 7 * width, width)
    ]
    names = [nodes.temporary(name) for name in ("state", "cell", "projections", "cells")]
    body = _projected_step(nodes, op, peepholes)
    backward = int(defn.is_reverse)
    nodes.add_all(
        "Scan", [*states, steps, is_step], names, body=body, num_scan_inputs=2,
        scan_input_directions=[backward] * 2, scan_output_directions=[backward] * 2,
    )  # fmt: skip
    for slot, name, columns in (("Projection", names[2], size), ("Cell", names[3], width)):
        padded = nodes.add("Transpose", [name], perm=[1, 0, 2])
        rows.unpadded(padded, [columns], nodes.output(op, slot))


def _projected_step(nodes: Nodes, op: Op, peepholes: list[str]) -> Any:
    """One step of `lstmp`: candidate, input, forget and output gate, the cell, its projection."""
    defn: Any = op.defn
    dtype = op["Input"].type.dtype
    width, size = (int(str(each)) for each in op["ProjWeight"].type.shape)
    inner = Nodes(nodes.graph, nodes)
    state, cell, entered, is_step = map(inner.temporary, ("state", "cell", "gates", "step"))
    product = inner.add("MatMul", [state, inner.input(op, "Weight")])
    all_gates = inner.add("Add", [entered, product])
    candidate, inlet, forget, outlet = (
        inner.add("Slice", [all_gates, *map(inner.constant, ([start], [start + width], [1]))])
        for start in range(0, 4 * width, width)
    )
    gate = str(defn.gate_activation)
    inlet, forget = (
        activated(inner, _checked(inner, value, cell, weight), gate)
        for value, weight in zip((inlet, forget), peepholes[:2], strict=True)
    )
    candidate = activated(inner, candidate, str(defn.candidate_activation))
    entering, left = inner.add("Mul", [candidate, inlet]), inner.add("Mul", [cell, forget])
    new = _within(inner, inner.add("Add", [entering, left]), float(defn.cell_clip), dtype)
    outlet = activated(inner, _checked(inner, outlet, new, peepholes[2]), gate)
    hidden = inner.add("Mul", [outlet, activated(inner, new, str(defn.cell_activation))])
    projected = inner.add("MatMul", [hidden, inner.input(op, "ProjWeight")])
    if defn.proj_activation != "identity":
        projected = activated(inner, projected, str(defn.cell_activation))
    projected = _within(inner, projected, float(defn.proj_clip), dtype)
    mask = column(inner, is_step)
    after = [inner.add("Where", [mask, *each]) for each in ((projected, state), (new, cell))]
    copies = [inner.add("Identity", [name]) for name in after]
    sizes = [size, width, 4 * width]
    entering = [
        declared(name, dtype, [None, columns])
        for name, columns in zip((state, cell, entered), sizes, strict=True)
    ]
    leaving = [
        declared(name, dtype, [None, columns])
        for name, columns in zip([*after, *copies], sizes[:2] * 2, strict=True)
    ]
    entering.append(declared(is_step, DType.BOOL, [None]))
    return inner.body("project", entering, leaving)


def _checked(nodes: Nodes, gate: str, cell: str, weight: str) -> str:
    """A gate that sees the cell too, if it has a weight for it."""
    return nodes.add("Add", [gate, nodes.add("Mul", [cell, weight])]) if weight else gate


def _within(nodes: Nodes, name: str, limit: float, dtype: DType) -> str:
    """A value between ± a limit, if that is above 0."""
    if limit <= 0:
        return name
    return nodes.add("Clip", [name, nodes.scalar(-limit, dtype), nodes.scalar(limit, dtype)])


# ---- decoding of beams and CRFs ------------------------------------------------------------------


@converts("gather_tree")
def gather_tree(nodes: Nodes, op: Op) -> None:
    """The tokens of each beam, by a `Scan` from the last step to the first."""
    ids, parents = nodes.input(op, "Ids"), nodes.input(op, "Parents")
    dtype = op["Ids"].type.dtype
    last = nodes.add("Shape", [ids], start=1)
    beams = nodes.add("Shape", [ids], start=2, end=3)
    every = nodes.cast(counted(nodes, nodes.add("Squeeze", [beams])), dtype)
    own = nodes.add("Expand", [every, last])
    inner = Nodes(nodes.graph, nodes)
    beam, tokens, before = map(inner.temporary, ("beam", "tokens", "before"))
    place = inner.cast(beam, DType.INT64)
    token, parent = (
        inner.add("GatherElements", [name, place], axis=1) for name in (tokens, before)
    )
    table = [None, None]
    body = inner.body(
        "tree", [declared(name, dtype, table) for name in (beam, tokens, before)],
        [declared(name, dtype, table) for name in (parent, token)],
    )  # fmt: skip
    nodes.add_all(
        "Scan", [own, ids, parents], [nodes.temporary("beam"), nodes.output(op, "Out")],
        body=body, num_scan_inputs=2, scan_input_directions=[1, 1], scan_output_directions=[1],
    )  # fmt: skip


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
