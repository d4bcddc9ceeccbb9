"""Matrix products."""

from __future__ import annotations

from typing import Any

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.ir.dims import product
from compiler.ir.graph import Op, Var


@converts("mul")
def mul(nodes: Nodes, op: Op) -> None:
    """A product of matrices, as which X and Y are seen: the axes after the first are one."""
    defn: Any = op.defn
    x, y, out = op["X"], op["Y"], op["Out"]
    rows, inner = int(defn.x_num_col_dims), int(defn.y_num_col_dims)
    if rows == len(x.type.shape) - 1 and inner == 1 and len(y.type.shape) == 2:
        nodes.add("MatMul", [nodes.name(x), nodes.name(y)], nodes.output(op, "Out"))
        return
    left, right = matrix(nodes, x, rows), matrix(nodes, y, inner)
    result = nodes.add("MatMul", [left, right])
    nodes.add("Reshape", [result, nodes.target(out.type.shape)], nodes.output(op, "Out"))


def matrix(nodes: Nodes, var: Var, axis: int) -> str:
    """A value seen as a matrix: its axes before `axis` are the rows."""
    shape = var.type.shape
    if len(shape) == 2 and axis == 1:
        return nodes.name(var)
    flat = (product(shape[:axis]), product(shape[axis:]))
    return nodes.add("Reshape", [nodes.name(var), nodes.target(flat)])


@converts("matmul", "matmul_v2", "bmm")
def matmul(nodes: Nodes, op: Op) -> None:
    """A product of stacks; the last two axes may be transposed, the result scaled by alpha."""
    defn: Any = op.defn
    if getattr(defn, "head_number", 1) != 1 or getattr(defn, "fused_reshape_Out", []):
        raise Unsupported("a matmul with heads or a fused reshape")
    if all(len(op[slot].type.shape) == 1 for slot in ("X", "Y")) and len(op["Out"].type.shape) > 1:
        raise Unsupported("the outer product of two vectors")
    is_transposed = {
        "X": getattr(defn, "transpose_X", getattr(defn, "trans_x", False)),
        "Y": getattr(defn, "transpose_Y", getattr(defn, "trans_y", False)),
    }
    names = [
        _transposed(nodes, op[slot]) if transposed else nodes.input(op, slot)
        for slot, transposed in is_transposed.items()
    ]
    alpha = float(getattr(defn, "alpha", 1.0))
    if alpha != 1:
        names[0] = nodes.add("Mul", [names[0], nodes.scalar(alpha, op["X"].type.dtype)])
    if all(len(op[slot].type.shape) > 1 for slot in is_transposed):
        nodes.add("MatMul", names, nodes.output(op, "Out"))
        return
    target = nodes.target(op["Out"].type.shape)
    nodes.add("Reshape", [nodes.add("MatMul", names), target], nodes.output(op, "Out"))


def _transposed(nodes: Nodes, var: Var) -> str:
    """The transpose of the last two axes; a vector itself."""
    name, rank = nodes.name(var), len(var.type.shape)
    if rank == 1:
        return name
    return nodes.add("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2])


@converts("dot")
def dot(nodes: Nodes, op: Op) -> None:
    """The sum of products along the last axis."""
    product_ = nodes.add("Mul", [nodes.input(op, "X"), nodes.input(op, "Y")])
    axes = nodes.constant([-1])
    nodes.add("ReduceSum", [product_, axes], nodes.output(op, "Out"), keepdims=1)


@converts("addmm")
def addmm(nodes: Nodes, op: Op) -> None:
    """`Gemm`."""
    defn: Any = op.defn
    nodes.add(
        "Gemm", [nodes.input(op, slot) for slot in ("X", "Y", "Input")], nodes.output(op, "Out"),
        alpha=float(defn.Alpha), beta=float(defn.Beta),
    )  # fmt: skip
