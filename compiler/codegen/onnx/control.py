"""Loops, branches and tensor arrays: `Loop`, `If` and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported, declared, element_type
from compiler.codegen.onnx.sequences import counted
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import DType

SCALAR = np.zeros(0, np.int64)
"""The target of `Reshape` for a value of rank 0."""


@converts("loop")
def loop(nodes: Nodes, op: Op) -> None:
    """The values that the body writes are carried; the others are read from outside."""
    written, carried = op.outputs["Written"], carried_vars(op)
    body = body_of(op)
    inner = inner_nodes(nodes, op, carried)
    count, more = inner.temporary("iteration"), inner.temporary("more")
    feeds = dict(zip(op.inputs["Captured"], captured_feeds(op), strict=True))
    inputs = [inner.bind(feeds[var]) for var in carried]
    inner.write_ops()
    (condition,) = op.inputs["Cond"]
    place = next(i for i, var in enumerate(carried) if var is condition)
    results = [inner.name(var) for var in body.results[: len(written)]]
    after = inner.add("Reshape", [results[place], inner.constant(SCALAR)])
    again = inner.add("Identity", [after], inner.temporary("again"))
    results = [inner.add("Identity", [name]) for name in results]
    entering = [
        declared(count, DType.INT64, []),
        declared(more, DType.BOOL, []),
        *(inner.open_info(feeds[v], name) for v, name in zip(carried, inputs, strict=True)),
    ]
    leaving = [
        declared(again, DType.BOOL, []),
        *(inner.open_info(v, name) for v, name in zip(body.results, results, strict=False)),
    ]
    graph = inner.body("loop", entering, leaving)
    start = nodes.add("Reshape", [nodes.name(condition), nodes.constant(SCALAR)])
    names = ["", start, *(nodes.name(var) for var in carried)]
    nodes.add_all("Loop", names, [nodes.bind(var) for var in written], body=graph)


@converts("if")
def branch(nodes: Nodes, op: Op) -> None:
    """The body's results, or the values that they replace."""
    written = op.outputs.get("Written", [])
    inner = inner_nodes(nodes, op, [])
    body = body_of(op)
    inner.write_ops()
    results = [inner.add("Identity", [inner.name(var)]) for var in body.results[: len(written)]]
    infos = [inner.open_info(var, name) for var, name in zip(written, results, strict=True)]
    then = inner.body("then", [], infos)
    other = Nodes(nodes.graph, nodes)
    kept = [unchanged(other, var, op) for var in written]
    infos = [other.open_info(var, name) for var, name in zip(written, kept, strict=True)]
    otherwise = other.body("else", [], infos)
    names = [nodes.bind(var) for var in written]
    nodes.add_all("If", [condition_of(nodes, op)], names, then_branch=then, else_branch=otherwise)


def condition_of(nodes: Nodes, op: Op) -> str:
    """The condition of a branch, a scalar: all elements are true, or no value is empty."""
    defn: Any = op.defn
    parts: list[str] = []
    for var in op.inputs["Cond"]:
        if defn.any_element:
            count = nodes.add("Size", [nodes.name(var)])
            parts.append(nodes.add("Greater", [count, nodes.scalar(0, DType.INT64)]))
        else:
            numbers = nodes.cast(nodes.name(var), DType.INT32)
            least = nodes.add("ReduceMin", [numbers], keepdims=0)
            parts.append(nodes.cast(least, DType.BOOL))
    result = parts[0]
    for part in parts[1:]:
        result = nodes.add("And", [result, part])
    return result


def unchanged(nodes: Nodes, var: Var, op: Op) -> str:
    """The value that a block would have replaced; an empty one if there was none, as no op reads
    it.
    """
    before = var.overwrites
    if before is not None and before in op.inputs.get("Captured", []):
        return nodes.add("Identity", [nodes.name(before)])
    kind = element_type(var.type.dtype)
    if var.type.is_array:
        return nodes.add("SequenceEmpty", [], dtype=kind)
    empty = np.zeros([0] * len(var.type.shape), var.type.dtype.numpy)
    return nodes.add("Identity", [nodes.constant(empty)])


@converts("select_input")
def select_input(nodes: Nodes, op: Op) -> None:
    """The input whose number Mask is."""
    inputs, levels = op.inputs["X"], op.inputs.get("X_lod", [])
    if levels or len(inputs) != 2:
        raise Unsupported("a choice among more than two values, or of sequences")
    branches: list[Any] = []
    for var in inputs:
        inner = Nodes(nodes.graph, nodes)
        info = inner.open_info(op["Out"], inner.add("Identity", [nodes.name(var)]))
        branches.append(inner.body("choice", [], [info]))
    mask = nodes.add("Reshape", [nodes.input(op, "Mask"), nodes.constant(SCALAR)])
    is_second = nodes.cast(mask, DType.BOOL)
    names = [nodes.output(op, "Out")]
    nodes.add_all("If", [is_second], names, then_branch=branches[1], else_branch=branches[0])


@converts("split_lod_tensor")
def split_rows(nodes: Nodes, op: Op) -> None:
    """The rows where the mask is true, and the others."""
    expect_rows(op)
    mask = nodes.add("Reshape", [nodes.input(op, "Mask"), nodes.constant([-1])])
    for slot, chosen in (("OutTrue", mask), ("OutFalse", nodes.add("Not", [mask]))):
        nodes.add("Compress", [nodes.input(op, "X"), chosen], nodes.output(op, slot), axis=0)


def expect_rows(op: Op) -> None:
    """Raise Unsupported for a mask of sequences."""
    if any(slot.endswith("_lod") for slot in (*op.inputs, *op.outputs)):
        raise Unsupported("a mask that chooses sequences rather than rows")


@converts("merge_lod_tensor", "merge_lod_tensor_infer")
def merge_rows(nodes: Nodes, op: Op) -> None:
    """Each row from InTrue or InFalse, in turn: their rows in the order of the mask's."""
    expect_rows(op)
    mask = nodes.add("Reshape", [nodes.input(op, "Mask"), nodes.constant([-1])])
    sides = [nodes.input(op, slot) for slot in ("InTrue", "InFalse")]
    places = [
        nodes.add("Transpose", [nodes.add("NonZero", [chosen])], perm=[1, 0])
        for chosen in (mask, nodes.add("Not", [mask]))
    ]
    rows, where = (nodes.add("Concat", each, axis=0) for each in (sides, places))
    flat = nodes.add("Reshape", [where, nodes.constant([-1])])
    order = nodes.add("ScatterElements", [flat, flat, counted(nodes, nodes.add("Size", [flat]))])
    nodes.add("Gather", [rows, order], nodes.output(op, "Out"), axis=0)


def body_of(op: Op) -> Graph:
    """The graph of an op's block."""
    assert op.body is not None
    return op.body


def captured_feeds(op: Op) -> list[Var]:
    """The feeds of the body that are the captured values, in their order."""
    captured = op.inputs.get("Captured", [])
    return body_of(op).feeds()[len(body_of(op).feeds()) - len(captured) :]


def carried_vars(op: Op) -> list[Var]:
    """The captured values that the written ones replace, in the order of the latter."""
    carried: list[Var] = []
    for var in op.outputs.get("Written", []):
        if var.overwrites is None or var.overwrites not in op.inputs["Captured"]:
            raise Unsupported(f"{var.label!r} has no value before the block")
        carried.append(var.overwrites)
    return carried


def inner_nodes(nodes: Nodes, op: Op, carried: list[Var]) -> Nodes:
    """The graph of a body, in which captured values that are not carried have their outer names."""
    inner = Nodes(body_of(op), nodes)
    for var, feed in zip(op.inputs.get("Captured", []), captured_feeds(op), strict=True):
        if var not in carried:
            inner.bind(feed, nodes.name(var))
    return inner


# ---- arrays --------------------------------------------------------------------------------------


def index_of(nodes: Nodes, name: str) -> str:
    """An index of shape [1] as a scalar."""
    return nodes.add("Reshape", [name, nodes.constant(SCALAR)])


@converts("empty_array")
def empty_array(nodes: Nodes, op: Op) -> None:
    """`SequenceEmpty`."""
    kind = element_type(op["Out"].type.dtype)
    nodes.add("SequenceEmpty", [], nodes.output(op, "Out"), dtype=kind)


@converts("write_to_array")
def write_to_array(nodes: Nodes, op: Op) -> None:
    """Replace the item at an index, or append it: an index may be at most the length.

    The levels of sequences are arrays of their own.
    """
    place = index_of(nodes, nodes.input(op, "I"))
    for suffix in ("", "_lod"):
        items, before = op.inputs.get(f"X{suffix}", []), op.inputs.get(f"Array{suffix}", [])
        outs = op.outputs.get(f"Out{suffix}", [])
        if len(items) != len(outs) or (op.inputs.get("Array") and len(before) != len(outs)):
            raise Unsupported("an array whose items have different levels of sequences")
        for index, (item, out) in enumerate(zip(items, outs, strict=True)):
            array = before[index] if before else None
            write_item(nodes, array, nodes.name(item), place, out)


def write_item(nodes: Nodes, array: Var | None, item: str, place: str, out: Var) -> None:
    """Write an array with an item at a place, or one with that item alone."""
    if array is None:
        empty = nodes.add("SequenceEmpty", [], dtype=element_type(out.type.dtype))
        nodes.add("SequenceInsert", [empty, item], nodes.bind(out))
        return
    name = nodes.name(array)
    length = nodes.add("SequenceLength", [name])
    is_present = nodes.add("Less", [place, length])
    branches: list[Any] = []
    for kind, names in (("SequenceErase", [name, place]), ("Identity", [name])):
        inner = Nodes(nodes.graph, nodes)
        info = inner.open_info(out, inner.add(kind, names))
        branches.append(inner.body("erase", [], [info]))
    shorter = nodes.add("If", [is_present], then_branch=branches[0], else_branch=branches[1])
    nodes.add("SequenceInsert", [shorter, item, place], nodes.bind(out))


@converts("read_from_array")
def read_from_array(nodes: Nodes, op: Op) -> None:
    """`SequenceAt`, also of the arrays of levels."""
    place = index_of(nodes, nodes.input(op, "I"))
    for suffix in ("", "_lod"):
        arrays = op.inputs.get(f"X{suffix}", [])
        for array, out in zip(arrays, op.outputs.get(f"Out{suffix}", []), strict=True):
            nodes.add("SequenceAt", [nodes.name(array), place], nodes.bind(out))


@converts("lod_array_length")
def array_length(nodes: Nodes, op: Op) -> None:
    """`SequenceLength`, as one element."""
    length = nodes.add("SequenceLength", [nodes.input(op, "X")])
    nodes.add("Reshape", [length, nodes.constant([1])], nodes.output(op, "Out"))


@converts("tensor_array_to_tensor")
def joined_array(nodes: Nodes, op: Op) -> None:
    """`ConcatFromSequence`; the export lacks OutIndex, the sizes of the items."""
    defn: Any = op.defn
    nodes.add(
        "ConcatFromSequence", [nodes.input(op, "X")], nodes.output(op, "Out"),
        axis=int(defn.axis), new_axis=int(defn.use_stack),
    )  # fmt: skip


# ---- steps of recurrent blocks -------------------------------------------------------------------


@converts("take_step")
def take_step(nodes: Nodes, op: Op) -> None:
    """One entry of the first axis."""
    place = index_of(nodes, nodes.input(op, "I"))
    nodes.add("Gather", [nodes.input(op, "X"), place], nodes.output(op, "Out"), axis=0)


@converts("step_index")
def step_index(nodes: Nodes, op: Op) -> None:
    """The number of a step, counted from the end where the block runs backwards."""
    defn: Any = op.defn
    index, count = nodes.input(op, "I"), nodes.input(op, "Count")
    if not defn.reverse:
        nodes.add("Identity", [index], nodes.output(op, "Out"))
        return
    last = nodes.add("Sub", [count, nodes.constant([1])])
    nodes.add("Sub", [last, index], nodes.output(op, "Out"))


@converts("step_count")
def step_count(nodes: Nodes, op: Op) -> None:
    """The size of the first axis."""
    nodes.add("Shape", [nodes.input(op, "X")], nodes.output(op, "Out"), start=0, end=1)


@converts("stack_steps")
def stack_steps(nodes: Nodes, op: Op) -> None:
    """`ConcatFromSequence` along a new first axis."""
    array = nodes.input(op, "X")
    nodes.add("ConcatFromSequence", [array], nodes.output(op, "Out"), axis=0, new_axis=1)
