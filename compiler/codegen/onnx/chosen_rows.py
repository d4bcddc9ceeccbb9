"""Ops whose results are those elements of an input that a mask chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.sequences import SequenceRows, column, counted
from compiler.ir.graph import Op
from compiler.ir.types import DType


@converts("masked_select")
def masked_select(nodes: Nodes, op: Op) -> None:
    """`Compress` of all elements."""
    nodes.add("Compress", [nodes.input(op, "X"), nodes.input(op, "Mask")], nodes.output(op, "Y"))


@converts("sequence_erase")
def sequence_erase(nodes: Nodes, op: Op) -> None:
    """The rows whose value is none of some."""
    defn: Any = op.defn
    x, tokens = op["X"], np.array([*defn.tokens], op["X"].type.dtype.numpy)
    name, *levels = nodes.name(x), *op.inputs["X_lod"]
    if not tokens.size:
        raise Unsupported("sequence_erase of nothing")
    is_token = nodes.add("Equal", [name, nodes.constant(tokens.reshape(1, -1))])
    numbers = nodes.add("ReduceMax", [nodes.cast(is_token, DType.INT32)], axes=[1], keepdims=0)
    is_kept = nodes.add("Not", [nodes.cast(numbers, DType.BOOL)])
    nodes.add("Compress", [name, is_kept], nodes.output(op, "Out"), axis=0)
    for outer, var in zip(levels[:-1], op.outputs.get("Out_lod", [])[:-1], strict=True):
        nodes.add("Identity", [nodes.name(outer)], nodes.bind(var))
    innermost = _offsets_of_kept(nodes, is_kept, nodes.name(levels[-1]))
    nodes.add("Identity", [innermost], nodes.bind(op.outputs["Out_lod"][-1]))


def _offsets_of_kept(nodes: Nodes, is_kept: str, offsets: str) -> str:
    """The offsets of sequences of which some rows [rows] are left."""
    ones = nodes.cast(is_kept, DType.INT64)
    ends = nodes.add("CumSum", [ones, nodes.constant(np.array(0))])
    return nodes.add("Gather", [
        nodes.add("Concat", [nodes.constant([0]), ends], axis=0), offsets,
    ])  # fmt: skip


@converts("ctc_align")
def ctc_align(nodes: Nodes, op: Op) -> None:
    """Paths without blanks, and without classes equal to those before them."""
    if op.inputs.get("InputLength"):
        _align_lines(nodes, op)
    else:
        _align_sequences(nodes, op)


def _align_sequences(nodes: Nodes, op: Op) -> None:
    """Rows [rows, 1] of sequences; a single -1 if none is left."""
    x = op["Input"]
    rows = SequenceRows.of(nodes, op, "Input")
    classes = nodes.add("Reshape", [nodes.name(x), nodes.constant([-1])])
    first = nodes.add("Equal", [nodes.add("Gather", [rows.starts, rows.sequence]), rows.numbers])
    before = nodes.add("Sub", [rows.numbers, nodes.scalar(1, DType.INT64)])
    previous = nodes.add("Gather", [classes, nodes.add("Max", [before, _zero(nodes)])])
    is_kept = _kept(nodes, op, classes, previous, first)
    left = nodes.add("Compress", [classes, is_kept], axis=0)
    count = nodes.add("Shape", [left])
    one = nodes.constant([1])
    with_end = nodes.add("Concat", [left, nodes.constant(np.array([-1], x.type.dtype.numpy))],
                         axis=0)  # fmt: skip
    end = nodes.add("Max", [count, one])
    result = nodes.add("Slice", [with_end, nodes.constant([0]), end])
    nodes.add("Unsqueeze", [result, one], nodes.output(op, "Output"))
    for var in op.outputs.get("Output_lod", []):
        offsets = _offsets_of_kept(nodes, is_kept, rows.offsets)
        nodes.add("Identity", [offsets], nodes.bind(var))


def _align_lines(nodes: Nodes, op: Op) -> None:
    """Lines [lines, longest] of the lengths in InputLength; the rest of each is padding."""
    defn: Any = op.defn
    x = op["Input"]
    lines, width = x.type.shape
    name, dtype = nodes.name(x), x.type.dtype
    steps = counted(nodes, nodes.add("Squeeze", [nodes.size(width)]))
    lengths = nodes.cast(nodes.input(op, "InputLength"), DType.INT64)
    lengths = nodes.add("Reshape", [lengths, nodes.constant([-1, 1])])
    first = nodes.add("Equal", [steps, _zero(nodes)])
    before = nodes.add("Max", [nodes.add("Sub", [steps, nodes.scalar(1, DType.INT64)]),
                               _zero(nodes)])  # fmt: skip
    previous = nodes.add("Gather", [name, before], axis=1)
    is_kept = _kept(nodes, op, name, previous, first)
    is_kept = nodes.add("And", [is_kept, nodes.add("Less", [steps, lengths])])
    ones = nodes.cast(is_kept, DType.INT64)
    counts = nodes.add("ReduceSum", [ones, nodes.constant([1])], keepdims=1)
    place = nodes.add("Sub", [nodes.add("CumSum", [ones, nodes.constant(np.array(1))]),
                              nodes.scalar(1, DType.INT64)])  # fmt: skip
    line = column(nodes, counted(nodes, nodes.add("Squeeze", [nodes.size(lines)])))
    flat = nodes.add("Add", [nodes.add("Mul", [line, nodes.size(width)]), place])
    target = nodes.constant([-1])
    mask, flat, values = (nodes.add("Reshape", [each, target]) for each in (is_kept, flat, name))
    flat, values = (nodes.add("Compress", [each, mask], axis=0) for each in (flat, values))
    fill = nodes.scalar(int(defn.padding_value), dtype)
    padding = nodes.add("Expand", [fill, nodes.add("Shape", [mask])])
    whole = nodes.add("ScatterElements", [padding, flat, values])
    shape = nodes.shape((lines, width))
    nodes.add("Reshape", [whole, shape], nodes.output(op, "Output"))
    if op.outputs.get("OutputLength"):
        nodes.cast(counts, dtype, nodes.output(op, "OutputLength"))


def _kept(nodes: Nodes, op: Op, classes: str, previous: str, first: str) -> str:
    """Which classes are no blank and, unless they are first, other than the previous one."""
    defn: Any = op.defn
    blank = nodes.scalar(int(defn.blank), op["Input"].type.dtype)
    is_class = nodes.add("Not", [nodes.add("Equal", [classes, blank])])
    if not defn.merge_repeated:
        return is_class
    is_other = nodes.add("Not", [nodes.add("Equal", [classes, previous])])
    return nodes.add("And", [is_class, nodes.add("Or", [first, is_other])])


def _zero(nodes: Nodes) -> str:
    return nodes.scalar(0, DType.INT64)
