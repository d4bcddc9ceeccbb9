"""Sequences of one LoD level ranked by length, longest first, for loops over their steps.

A rank table is a value [N, 2]: the sequence and its length. An array of ranked sequences is a
sequence of ONNX whose item t has step t of all that are longer than t.
"""

from __future__ import annotations

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.onnx.sequences import SequenceRows, column, counted, offsets_after
from compiler.ir.graph import Op
from compiler.ir.types import DType


@converts("lod_rank_table")
def rank_table(nodes: Nodes, op: Op) -> None:
    """The sequences and their lengths by `TopK`, which is stable."""
    expect_one_level(op, "X_lod", 1)
    rows = SequenceRows(nodes, nodes.name(op.inputs["X_lod"][0]))
    names = [nodes.temporary("lengths"), nodes.temporary("order")]
    nodes.add_all("TopK", [rows.lengths, nodes.add("Shape", [rows.lengths])], names)
    columns = [column(nodes, name) for name in reversed(names)]
    nodes.add("Concat", columns, nodes.output(op, "Out"), axis=1)


def expect_one_level(op: Op, slot: str, most: int) -> None:
    """Raise Unsupported for more than `most` levels, or a table of sequences of sequences."""
    if len(op.inputs.get(slot, [])) > most or op.inputs.get("RankTable_lod"):
        raise Unsupported("ranked sequences of several LoD levels")


def table_column(nodes: Nodes, op: Op, place: int) -> str:
    """The sequences (0) or the lengths (1) of the op's rank table."""
    table = nodes.input(op, "RankTable")
    return nodes.add("Gather", [table, nodes.scalar(place, DType.INT64)], axis=1)


@converts("max_sequence_len")
def longest(nodes: Nodes, op: Op) -> None:
    """The largest length, 0 if there is no sequence."""
    every = nodes.add("Concat", [nodes.constant([0]), table_column(nodes, op, 1)], axis=0)
    nodes.add("ReduceMax", [every], nodes.output(op, "Out"), axes=[0], keepdims=1)


@converts("shrink_rnn_memory")
def shrink(nodes: Nodes, op: Op) -> None:
    """The first rows or sequences: as many as there are sequences with more than I steps."""
    expect_one_level(op, "X_lod", 1)
    step = nodes.add("Reshape", [nodes.input(op, "I"), nodes.constant([1])])
    is_longer = nodes.add("Greater", [table_column(nodes, op, 1), step])
    ones = nodes.cast(is_longer, DType.INT64)
    zero, one = nodes.constant([0]), nodes.constant([1])
    count = nodes.add("ReduceSum", [ones, zero], keepdims=1)
    for level, out in zip(op.inputs.get("X_lod", []), op.outputs.get("Out_lod", []), strict=True):
        offsets, end = nodes.name(level), nodes.add("Add", [count, one])
        nodes.add("Slice", [offsets, zero, end, zero], nodes.bind(out))
        count = nodes.add("Gather", [offsets, count])
    bounds = [zero, count, zero]
    nodes.add("Slice", [nodes.input(op, "X"), *bounds], nodes.output(op, "Out"))


@converts("reorder_lod_tensor_by_rank", "reorder_lod_tensor_by_rank_grad")
def reorder(nodes: Nodes, op: Op) -> None:
    """Rows, or sequences, in the order of the table, or back in that of their numbers."""
    expect_one_level(op, "X_lod", 1)
    order = table_column(nodes, op, 0)
    if op.kind.endswith("_grad"):
        order = _inverse(nodes, order)
    levels = op.inputs.get("X_lod")
    if levels:
        rows = SequenceRows(nodes, nodes.name(levels[0]))
        place = nodes.add("Gather", [_inverse(nodes, order), rows.sequence])
        order = _sorted_order(nodes, place)
        lengths = nodes.add("Gather", [rows.lengths, table_column(nodes, op, 0)])
        if op.kind.endswith("_grad"):
            raise Unsupported("sequences in the order of their numbers again")
        nodes.add("Identity", [offsets_after(nodes, lengths)], nodes.bind(op.outputs["Out_lod"][0]))
    nodes.add("Gather", [nodes.input(op, "X"), order], nodes.output(op, "Out"))


def _inverse(nodes: Nodes, order: str) -> str:
    """At which place each number of a permutation is."""
    numbers = counted(nodes, nodes.add("Size", [order]))
    return nodes.add("ScatterElements", [order, order, numbers])


def _sorted_order(nodes: Nodes, keys: str) -> str:
    """The places of keys in ascending order, equal ones in theirs."""
    names = [nodes.temporary("keys"), nodes.temporary("order")]
    nodes.add_all("TopK", [keys, nodes.add("Shape", [keys])], names, largest=0)
    return names[1]


def _steps_first(nodes: Nodes, rows: SequenceRows, table: str) -> str:
    """For each row its place in the order of steps, and within a step of ranks [rows]."""
    rank = nodes.add("Gather", [_inverse(nodes, table), rows.sequence])
    begin = nodes.add("Gather", [rows.starts, rows.sequence])
    step = nodes.add("Sub", [rows.numbers, begin])
    count = nodes.add("Size", [table])
    return nodes.add("Add", [nodes.add("Mul", [step, count]), rank])


@converts("lod_tensor_to_array")
def to_array(nodes: Nodes, op: Op) -> None:
    """`SplitToSequence` of the rows in the order of their steps."""
    expect_one_level(op, "X_lod", 1)
    rows = SequenceRows(nodes, nodes.name(op.inputs["X_lod"][0]))
    order = _sorted_order(nodes, _steps_first(nodes, rows, table_column(nodes, op, 0)))
    sorted_rows = nodes.add("Gather", [nodes.input(op, "X"), order])
    steps = counted(nodes, rows.longest)
    is_longer = nodes.add("Greater", [column(nodes, rows.lengths), steps])
    ones = nodes.cast(is_longer, DType.INT64)
    counts = nodes.add("ReduceSum", [ones, nodes.constant([0])], keepdims=0)
    nodes.add("SplitToSequence", [sorted_rows, counts], nodes.output(op, "Out"), axis=0)


@converts("array_to_lod_tensor")
def from_array(nodes: Nodes, op: Op) -> None:
    """`ConcatFromSequence`, and the rows in the order of their sequences again."""
    expect_one_level(op, "X_lod", 0)
    order = table_column(nodes, op, 0)
    lengths = nodes.add("Gather", [table_column(nodes, op, 1), _inverse(nodes, order)])
    rows = SequenceRows(nodes, offsets_after(nodes, lengths))
    places = _inverse(nodes, _sorted_order(nodes, _steps_first(nodes, rows, order)))
    nodes.add("Identity", [rows.offsets], nodes.bind(op.outputs["Out_lod"][0]))
    whole = nodes.add("ConcatFromSequence", [nodes.input(op, "X")], axis=0)
    nodes.add("Gather", [whole, places], nodes.output(op, "Out"))
