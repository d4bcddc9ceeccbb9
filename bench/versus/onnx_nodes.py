"""ONNX nodes of single fluid ops, for `onnx_export.py`; opset 17.

A function takes the graph to write to and an op, and adds nodes whose results have the names of the
op's outputs. Only what the nets of `cpu.py` use is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod, sqrt
from typing import Any, Protocol

import numpy as np

from compiler.ir.program import OpDesc


class Nodes(Protocol):
    """The ONNX graph that is being written."""

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        ...

    def constant(self, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        ...

    def rank(self, name: str) -> int:
        """The number of dimensions of a variable."""
        ...

    def size(self, name: str, axis: int) -> int:
        """The size of a parameter along an axis."""
        ...


def _one(op: OpDesc, slot: str) -> str:
    return (op.inputs.get(slot) or op.outputs[slot])[0]


def _conv(nodes: Nodes, op: OpDesc) -> None:
    pads = list(op.attrs["paddings"])
    assert op.attrs.get("padding_algorithm", "EXPLICIT") == "EXPLICIT" and len(pads) == 2
    nodes.add(
        "Conv", [_one(op, "Input"), _one(op, "Filter")], _one(op, "Output"), pads=pads * 2,
        strides=list(op.attrs["strides"]), dilations=list(op.attrs["dilations"]),
        group=op.attrs["groups"],
    )  # fmt: skip


def _batch_norm(nodes: Nodes, op: OpDesc) -> None:
    names = [_one(op, slot) for slot in ("X", "Scale", "Bias", "Mean", "Variance")]
    nodes.add("BatchNormalization", names, _one(op, "Y"), epsilon=op.attrs["epsilon"])


def _pool(nodes: Nodes, op: OpDesc) -> None:
    kind = {"max": "Max", "avg": "Average"}[op.attrs["pooling_type"]]
    if op.attrs["global_pooling"]:
        nodes.add(f"Global{kind}Pool", [_one(op, "X")], _one(op, "Out"))
        return
    nodes.add(
        f"{kind}Pool", [_one(op, "X")], _one(op, "Out"), kernel_shape=list(op.attrs["ksize"]),
        strides=list(op.attrs["strides"]), pads=list(op.attrs["paddings"]) * 2,
        ceil_mode=int(op.attrs["ceil_mode"]),
    )  # fmt: skip


def _mul(nodes: Nodes, op: OpDesc) -> None:
    """A product of matrices; the last axes of X are flattened."""
    x, columns = _one(op, "X"), op.attrs["x_num_col_dims"]
    if columns < nodes.rank(x) - 1:
        x = nodes.add("Flatten", [x], f"{x}.flat", axis=columns)
    nodes.add("MatMul", [x, _one(op, "Y")], _one(op, "Out"))


def _added(nodes: Nodes, op: OpDesc) -> None:
    """A sum; Y is broadcast from `axis` on, so it gets ones behind it."""
    x, y, axis = _one(op, "X"), _one(op, "Y"), op.attrs["axis"]
    behind = nodes.rank(x) - axis - nodes.rank(y) if axis >= 0 else 0
    if behind:
        shape = nodes.constant(np.array([-1, *[1] * behind], np.int64))
        y = nodes.add("Reshape", [y, shape], f"{y}.broadcast")
    nodes.add("Add", [x, y], _one(op, "Out"))


def _scaled(nodes: Nodes, op: OpDesc) -> None:
    assert op.attrs["bias_after_scale"]
    factor, bias = (nodes.constant(np.float32(op.attrs[name])) for name in ("scale", "bias"))
    product = nodes.add("Mul", [_one(op, "X"), factor], f"{_one(op, 'Out')}.product")
    nodes.add("Add", [product, bias], _one(op, "Out"))


def _matmul(nodes: Nodes, op: OpDesc) -> None:
    y, out, alpha = _one(op, "Y"), _one(op, "Out"), op.attrs["alpha"]
    assert not op.attrs["transpose_X"]
    if op.attrs["transpose_Y"]:
        y = nodes.add("Transpose", [y], f"{out}.transposed", perm=[0, 1, 3, 2])
    product = nodes.add("MatMul", [_one(op, "X"), y], out if alpha == 1 else f"{out}.product")
    if alpha != 1:
        nodes.add("Mul", [product, nodes.constant(np.float32(alpha))], out)


def _reshaped(nodes: Nodes, op: OpDesc) -> None:
    shape = nodes.constant(np.array(op.attrs["shape"], np.int64))
    nodes.add("Reshape", [_one(op, "X"), shape], _one(op, "Out"))


def _gelu(nodes: Nodes, op: OpDesc) -> None:
    """GELU, x · (1 + erf(x / √2)) · ½, as exporters write it and ONNX Runtime fuses it."""
    x, out = _one(op, "X"), _one(op, "Out")
    ratio = nodes.add("Div", [x, nodes.constant(np.float32(sqrt(2)))], f"{out}.ratio")
    error = nodes.add("Erf", [ratio], f"{out}.erf")
    more = nodes.add("Add", [error, nodes.constant(np.float32(1))], f"{out}.more")
    product = nodes.add("Mul", [x, more], f"{out}.product")
    nodes.add("Mul", [product, nodes.constant(np.float32(0.5))], out)


def _layer_norm(nodes: Nodes, op: OpDesc) -> None:
    names = [_one(op, slot) for slot in ("X", "Scale", "Bias")]
    axis = op.attrs["begin_norm_axis"]
    assert axis == nodes.rank(names[0]) - 1
    nodes.add("LayerNormalization", names, _one(op, "Y"), axis=-1, epsilon=op.attrs["epsilon"])


def _assigned(nodes: Nodes, op: OpDesc) -> None:
    array = np.array(op.attrs["int64_values"], np.int64).reshape(op.attrs["shape"])
    assert array.size == prod(op.attrs["shape"])
    nodes.add("Identity", [nodes.constant(array)], _one(op, "Out"))


def _relu6(nodes: Nodes, op: OpDesc) -> None:
    low, high = nodes.constant(np.float32(0)), nodes.constant(np.float32(op.attrs["threshold"]))
    nodes.add("Clip", [_one(op, "X"), low, high], _one(op, "Out"))


NODES: Mapping[str, Callable[[Nodes, OpDesc], object]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "batch_norm": _batch_norm,
    "pool2d": _pool,
    "mul": _mul,
    "elementwise_add": _added,
    "scale": _scaled,
    "matmul": _matmul,
    "reshape2": _reshaped,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "assign_value": _assigned,
    "relu6": _relu6,
    "relu": lambda nodes, op: nodes.add("Relu", [_one(op, "X")], _one(op, "Out")),
    "softmax": lambda nodes, op: nodes.add("Softmax", [_one(op, "X")], _one(op, "Out"), axis=-1),
    "transpose2": lambda nodes, op: nodes.add(
        "Transpose", [_one(op, "X")], _one(op, "Out"), perm=list(op.attrs["axis"])
    ),
    "lookup_table_v2": lambda nodes, op: nodes.add(
        "Gather", [_one(op, "W"), _one(op, "Ids")], _one(op, "Out"), axis=0
    ),
}
"""Writers by op type."""
