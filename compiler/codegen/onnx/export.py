"""Writes a graph as an ONNX model, or says at once everything that ONNX lacks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.codegen.onnx import (
    beams,
    chosen_rows,
    control,
    detection,
    images,
    layers,
    products,
    proposals,
    rank_tables,
    recurrent,
    recurrent_units,
    reductions,
    sequences,
    shapes,
)
from compiler.codegen.onnx.converters import CONVERTERS
from compiler.codegen.onnx.kernels import has_nodes, write_kernels
from compiler.codegen.onnx.nodes import Nodes, Unsupported, onnx, tensor
from compiler.codegen.onnx.pointwise import write_pointwise
from compiler.errors import CompileError
from compiler.ir.graph import Graph, Op
from compiler.ir.opdef import OpDef, Pointwise
from compiler.ir.opdef.global_reductions import KEY
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

__all__ = ["OPSET", "ExportError", "Refusal", "converted", "onnx_model", "writes"]

OPSET, IR_VERSION = 17, 8
"""What ONNX Runtime 1.12 (2022) and newer read; `LayerNormalization` needs the opset."""
FAMILIES = (
    beams,
    chosen_rows,
    control,
    detection,
    images,
    layers,
    products,
    proposals,
    rank_tables,
    recurrent,
    recurrent_units,
    reductions,
    sequences,
    shapes,
)
"""The modules whose converters are registered."""


@dataclass(frozen=True)
class Refusal:
    """An op that cannot be exported: its kind, the user's line if known, and why."""

    kind: str
    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}{f' ({self.source})' if self.source else ''}: {self.reason}"


class ExportError(CompileError):
    """A model has ops without a counterpart in ONNX; `refusals` are all of them."""

    def __init__(self, refusals: list[Refusal]) -> None:
        self.refusals = refusals
        lines = "\n".join(f"  {refusal}" for refusal in dict.fromkeys(refusals))
        super().__init__(f"ONNX cannot represent {len(refusals)} of the model's ops:\n{lines}")


def onnx_model(graph: Graph, params: Mapping[str, Array]) -> Any:
    """Return a graph as a `ModelProto` with the parameters in it.

    Inputs are the feeds of the graph: for a feed of sequences its rows and, as `NAME@LOD0`, the
    offsets at which they begin. Open sizes are symbolic. Raises ExportError for ops that ONNX
    lacks, and ImportError if the package `onnx` is not installed.
    """
    helper = onnx().helper
    ops = _Ops()
    nodes = Nodes(graph, write_ops=ops.write)
    for var in [*graph.feeds(), *graph.params()]:
        nodes.bind(var, var.label)
    used = {var for op in graph.ops() for var in op.reads()} | {*graph.results}
    for var in graph.params():
        if var in used:
            nodes.initializers.append(tensor(params[var.name], var.label))
    nodes.write_ops()
    ops.expect_results(nodes)
    if ops.refusals:
        raise ExportError(ops.refusals)
    inputs = [nodes.info(var) for var in graph.feeds()]
    outputs = [nodes.info(var) for var in graph.results]
    proto = helper.make_graph(nodes.nodes, graph.name, inputs, outputs, nodes.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="fluid-compiler"
    )


def writes(defn: type[OpDef]) -> bool:
    """True if an op has a counterpart for at least some attributes.

    An op made of others has none of its own: a graph contains what it is made of.
    """
    if defn.kind in CONVERTERS:
        return True
    if issubclass(defn, Pointwise):
        return not defn.is_random and KEY not in defn.slots
    return not defn.is_random and has_nodes(defn)


def converted(model: Any, opset: int) -> Any:
    """Return a `ModelProto` in a later operator set. Raises ValueError if that is impossible."""
    newest = onnx().defs.onnx_opset_version()
    if not OPSET <= opset <= newest:
        raise ValueError(f"opset {opset} cannot be written: choose one from {OPSET} to {newest}")
    try:
        return onnx().version_converter.convert_version(model, opset)
    except RuntimeError as error:
        raise ValueError(f"opset {opset}: {error}") from error


class _Ops:
    """Writes the ops of the model's graph and of all bodies; collects those that ONNX lacks."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def write(self, nodes: Nodes, graph: Graph) -> None:
        """Write the ops of a graph in the order of the data."""
        for op in graph.ops():
            try:
                _write(nodes, op)
            except Unsupported as error:
                self.refusals.append(Refusal(op.kind, op.source, str(error)))
                for var in op.writes():
                    nodes.bind(var)

    def expect_results(self, nodes: Nodes) -> None:
        """Add a refusal for each result that no converter has written."""
        for var in nodes.graph.results:
            producer = nodes.graph.producer(var)
            if not nodes.has(var) and producer is not None:
                reason = f"its result {var.label!r} has no counterpart"
                self.refusals.append(Refusal(producer.kind, producer.source, reason))


def _write(nodes: Nodes, op: Op) -> None:
    """Write an op by its converter; from its own definition if it has none, or none for its use."""
    converter = CONVERTERS.get(op.kind)
    if converter is None:
        _write_definition(nodes, op)
        return
    before = len(nodes.nodes)
    try:
        converter(nodes, op)
    except Unsupported as refusal:
        if len(nodes.nodes) > before:
            raise
        try:
            _write_definition(nodes, op)
        except Unsupported:
            raise refusal from None


def _write_definition(nodes: Nodes, op: Op) -> None:
    """Write an op from the expression or the kernels that define it."""
    if isinstance(op.defn, Pointwise):
        write_pointwise(nodes, op)
    else:
        write_kernels(nodes, op)
