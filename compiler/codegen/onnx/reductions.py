"""Ops that reduce axes, sort, and search."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes
from compiler.ir.graph import Op
from compiler.ir.types import DType

REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd", "logsumexp": "ReduceLogSumExp",
    "frobenius_norm": "ReduceL2",
}  # fmt: skip


@converts(*REDUCTIONS)
def reduction(nodes: Nodes, op: Op) -> None:
    """Over some axes; the result of all of them has one element."""
    defn: Any = op.defn
    x, out = op["X"], op["Out"]
    rank = len(x.type.shape)
    axes = [*getattr(defn, "dim", getattr(defn, "axis", []))]
    axes = [*range(rank)] if defn.reduce_all or not axes else sorted(a % rank for a in axes)
    name, target = nodes.name(x), nodes.target(out.type.shape)
    is_kept = len(out.type.shape) == rank
    result = nodes.output(op, "Out")
    is_shaped = not is_kept and len(axes) == rank  # [1] here, rank 0 in ONNX
    written = None if is_shaped or x.type.dtype is not out.type.dtype else result
    kind, keepdims = REDUCTIONS[op.kind], int(is_kept)
    if kind == "ReduceSum":
        name = nodes.add(kind, [name, nodes.constant(axes)], written, keepdims=keepdims)
    else:
        name = nodes.add(kind, [name], written, axes=axes, keepdims=keepdims)
    if written:
        return
    if x.type.dtype is not out.type.dtype:
        name = nodes.cast(name, out.type.dtype)
    nodes.add("Reshape", [name, target], result)


@converts("reduce_all", "reduce_any")
def logical_reduction(nodes: Nodes, op: Op) -> None:
    """The least or the largest of the booleans as numbers."""
    defn: Any = op.defn
    x, out = op["X"], op["Out"]
    rank = len(x.type.shape)
    axes = [*range(rank)] if defn.reduce_all else sorted(axis % rank for axis in defn.dim)
    kind = {"reduce_all": "ReduceMin", "reduce_any": "ReduceMax"}[op.kind]
    numbers = nodes.cast(nodes.name(x), DType.INT32)
    result = nodes.cast(nodes.add(kind, [numbers], axes=axes, keepdims=1), DType.BOOL)
    nodes.add("Reshape", [result, nodes.target(out.type.shape)], nodes.output(op, "Out"))


@converts("mean")
def mean(nodes: Nodes, op: Op) -> None:
    """Of all elements, as one element."""
    whole = nodes.add("ReduceMean", [nodes.input(op, "X")], keepdims=0)
    nodes.add("Reshape", [whole, nodes.constant([1])], nodes.output(op, "Out"))


@converts("l1_norm", "squared_l2_norm")
def whole_norm(nodes: Nodes, op: Op) -> None:
    """Of all elements, as one element."""
    kind = {"l1_norm": "ReduceL1", "squared_l2_norm": "ReduceSumSquare"}[op.kind]
    whole = nodes.add(kind, [nodes.input(op, "X")], keepdims=0)
    nodes.add("Reshape", [whole, nodes.constant([1])], nodes.output(op, "Out"))


@converts("norm")
def norm(nodes: Nodes, op: Op) -> None:
    """X / sqrt(sum of squares along an axis + epsilon)."""
    defn: Any = op.defn
    dtype = op["X"].type.dtype
    x = nodes.input(op, "X")
    squares = nodes.add("ReduceSumSquare", [x], axes=[int(defn.axis)], keepdims=1)
    shifted = nodes.add("Add", [squares, nodes.scalar(float(defn.epsilon), dtype)])
    length = nodes.add("Sqrt", [shifted], nodes.output(op, "Norm"))
    nodes.add("Div", [x, length], nodes.output(op, "Out"))


@converts("cos_sim")
def cos_sim(nodes: Nodes, op: Op) -> None:
    """The cosine of the angle between rows, all axes after the first being one."""
    flat = nodes.constant([0, -1])
    x, y = (nodes.add("Reshape", [nodes.input(op, slot), flat]) for slot in ("X", "Y"))
    lengths = [
        nodes.add("ReduceL2", [name], nodes.output(op, slot), axes=[1], keepdims=1)
        for name, slot in ((x, "XNorm"), (y, "YNorm"))
    ]
    both = nodes.add("Mul", [x, y])
    total = nodes.add("ReduceSum", [both, nodes.constant([1])], keepdims=1)
    nodes.add("Div", [total, nodes.add("Mul", lengths)], nodes.output(op, "Out"))


@converts("top_k", "top_k_v2")
def top_k(nodes: Nodes, op: Op) -> None:
    """`TopK`."""
    defn: Any = op.defn
    count = nodes.constant([int(defn.k)])
    if op.inputs.get("K"):
        k = nodes.cast(nodes.input(op, "K"), DType.INT64)
        count = nodes.add("Reshape", [k, nodes.constant([1])])
    nodes.add_all(
        "TopK", [nodes.input(op, "X"), count],
        [nodes.output(op, "Out"), nodes.output(op, "Indices")],
        axis=int(getattr(defn, "axis", -1)), largest=int(getattr(defn, "largest", True)),
    )  # fmt: skip


@converts("argsort")
def argsort(nodes: Nodes, op: Op) -> None:
    """`TopK` of all elements of an axis."""
    defn: Any = op.defn
    x = op["X"]
    count = nodes.shape((x.type.shape[int(defn.axis)],))
    nodes.add_all(
        "TopK", [nodes.name(x), count], [nodes.output(op, "Out"), nodes.output(op, "Indices")],
        axis=int(defn.axis), largest=int(defn.descending),
    )  # fmt: skip


@converts("arg_max", "arg_min")
def arg_extreme(nodes: Nodes, op: Op) -> None:
    """`ArgMax` or `ArgMin`."""
    defn: Any = op.defn
    kind = {"arg_max": "ArgMax", "arg_min": "ArgMin"}[op.kind]
    name, axis = nodes.input(op, "X"), int(defn.axis or 0)
    if defn.flatten:
        name, axis = nodes.add("Reshape", [name, nodes.constant([-1])]), 0
    place = nodes.add(kind, [name], axis=axis, keepdims=int(bool(defn.keepdims)))
    out = op["Out"]
    place = nodes.cast(place, out.type.dtype)
    nodes.add("Reshape", [place, nodes.target(out.type.shape)], nodes.output(op, "Out"))


@converts("cumsum")
def cumsum(nodes: Nodes, op: Op) -> None:
    """`CumSum`."""
    defn: Any = op.defn
    name, axis = nodes.input(op, "X"), int(defn.axis)
    if defn.flatten:
        name, axis = nodes.add("Reshape", [name, nodes.constant([-1])]), 0
    nodes.add(
        "CumSum", [name, nodes.constant(np.array(axis, np.int64))], nodes.output(op, "Out"),
        exclusive=int(defn.exclusive), reverse=int(defn.reverse),
    )  # fmt: skip


@converts("softmax_with_cross_entropy")
def softmax_with_cross_entropy(nodes: Nodes, op: Op) -> None:
    """Softmax, and minus the logarithm of the label's share."""
    defn: Any = op.defn
    logits, label = op["Logits"], op["Label"]
    axis = int(defn.axis)
    name = nodes.name(logits)
    nodes.add("Softmax", [name], nodes.output(op, "Softmax"), axis=axis)
    logs = nodes.add("LogSoftmax", [name], axis=axis)
    loss = nodes.output(op, "Loss")
    if defn.soft_label:
        both = nodes.add("Mul", [logs, nodes.name(label)])
        total = nodes.add("ReduceSum", [both, nodes.constant([axis])], keepdims=1)
        nodes.add("Neg", [total], loss)
        return
    label_loss(nodes, logs, nodes.name(label), axis, int(defn.ignore_index), loss)


def label_loss(nodes: Nodes, logs: str, label: str, axis: int, ignored: int, out: str) -> None:
    """Minus the logarithm at each label; zero where the label is the ignored one."""
    zero = nodes.constant([0])
    is_ignored = nodes.add("Equal", [label, nodes.constant([ignored])])
    place = nodes.add("Where", [is_ignored, zero, label])
    taken = nodes.add("Neg", [nodes.add("GatherElements", [logs, place], axis=axis)])
    nodes.add("Where", [is_ignored, nodes.add("Sub", [taken, taken]), taken], out)
