"""A saved fluid model as an ONNX file with the same weights, for ONNX Runtime.

`onnx` is imported when a model is exported; `onnx_nodes.py` lists the ops that are known.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from bench.versus.onnx_nodes import NODES
from compiler.ir.program import OpDesc
from fluid.saving.inference_model import InferenceModel

OPSET, IR_VERSION = 17, 8


class Graph:
    """An ONNX graph being written: `Nodes` of a model's main block."""

    def __init__(self, model: InferenceModel) -> None:
        self._onnx = importlib.import_module("onnx")
        self._block = model.program.block(0)
        self.params = {name: np.asarray(tensor.array) for name, tensor in model.params.items()}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        name = f"constant.{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def rank(self, name: str) -> int:
        """The number of dimensions of a variable."""
        return len(self._block.var(name).shape)

    def size(self, name: str, axis: int) -> int:
        """The size of a parameter along an axis."""
        return self.params[name].shape[axis]

    def write(self, op: OpDesc) -> None:
        """Add the nodes of an op; KeyError if the type is not known."""
        NODES[op.type](self, op)

    def info(self, var: Any) -> Any:
        """The declaration of an input or output; the batch is symbolic."""
        kind = {"float32": "FLOAT", "int64": "INT64"}[np.dtype(var.element.numpy).name]
        shape = ["N" if size < 0 else int(size) for size in var.shape]
        element = getattr(self._onnx.TensorProto, kind)
        return self._onnx.helper.make_tensor_value_info(var.name, element, shape)


def export(model: InferenceModel, path: Path) -> None:
    """Write a model as ONNX. Raises ImportError without `onnx`, KeyError for an unknown op."""
    onnx = importlib.import_module("onnx")
    graph = Graph(model)
    ops = [op for op in model.program.block(0).ops if op.type not in ("feed", "fetch")]
    for op in ops:
        graph.write(op)
    used = {name for op in ops for name in op.reads()}
    weights = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in graph.params.items()
        if name in used
    ]
    inputs, outputs = ([graph.info(var) for var in vars] for vars in (model.feeds, model.fetches))
    written = onnx.helper.make_graph(
        graph.nodes, "fluid", inputs, outputs, [*weights, *graph.constants]
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.helper.make_model(written, opset_imports=opsets, ir_version=IR_VERSION)
    onnx.save(proto, str(path))
