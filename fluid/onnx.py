"""`fluid.onnx.export`: a saved model as an ONNX file, for tools that read ONNX.

The package `onnx` is an extra: `pip install 'fluid-compiler[onnx]'`.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compiler.driver import declared_graph
from compiler.errors import CompileError
from compiler.ir.graph import Graph
from compiler.ir.types import Array
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named
from compiler.support.extras import install
from compiler.support.lazy_loading import load
from compiler.support.tracebacks import entry_point
from fluid.saving.files import PathName, as_path, bytes_writer
from fluid.saving.inference_model import read_inference_model
from runtime.files.atomic_saves import save_files

__all__ = ["export", "export_graph", "simplify"]

PASSES = (
    "resolve_sizes drop_unread remove_dropout remove_identities fuse_batch_norm fold_constants "
    "merge_transposes merge_reshapes merge_common eliminate_dead"
).split()
"""The passes whose results are ops of programs again; `fuse_batch_norm` folds norms."""
UNFOLDED = ("resolve_sizes", "drop_unread", "remove_dropout", "eliminate_dead")
"""The passes for a model as it was saved."""
LIMIT = 2**31 - 1
"""The most bytes of a protobuf message, and so of an ONNX file with its weights in it."""


@entry_point
def export(
    dirname: PathName,
    path: PathName,
    model_filename: str | None = None,
    params_filename: str | None = None,
    folded: bool = True,
    opset: int | None = None,
) -> None:
    """Write the model saved in `dirname` to an ONNX file; missing folders are created.

    Feeds and fetches keep their names, open sizes are symbolic. A feed `x` of sequences has a
    second input, `x@LOD0`, with the offsets [N + 1] at which they begin, and results of sequences
    likewise. With `folded`, batch norms and constants are folded into weights first. `opset` is 17
    or later.

    Raises ExportError, which lists all ops that ONNX lacks with the reason for each, ImportError
    without the package `onnx`, ValueError for an opset that it cannot write, and the errors of
    `load_inference_model`.
    """
    model = read_inference_model(dirname, model_filename, params_filename)
    feeds, fetches = ([var.name for var in vars] for vars in (model.feeds, model.fetches))
    graph = declared_graph(model.program, feeds, fetches)
    arrays = {name: tensor.array for name, tensor in model.params.items()}
    params = {name: array for name, array in arrays.items() if array is not None}
    export_graph(graph, params, as_path(path, "path"), folded, opset)


def export_graph(
    graph: Graph,
    params: dict[str, Array],
    path: Path,
    folded: bool = True,
    opset: int | None = None,
) -> Any:
    """Write a graph, which the passes change, to an ONNX file; returns the `ModelProto`.

    Raises as `export` does; nothing is written then.
    """
    if find_spec("onnx") is None:
        raise ImportError(f"ONNX files need the package onnx: {install('onnx')}", name="onnx")
    writer = load(partial(import_module, "compiler.codegen.onnx.export"))
    simplify(graph, params, folded)
    proto = writer.onnx_model(graph, params)
    if opset is not None and opset != writer.OPSET:
        proto = writer.converted(proto, opset)
    if proto.ByteSize() > LIMIT:
        raise CompileError(f"the model has {proto.ByteSize():,d} bytes, ONNX files at most 2 GiB")
    data = proto.SerializeToString(deterministic=True)
    save_files(path.parent, {path.name: bytes_writer(data)})
    return proto


def simplify(graph: Graph, params: dict[str, Array], folded: bool = True) -> None:
    """Run the passes that leave ops of programs; `folded` folds norms and constants into weights.

    The graph is changed in place, and `params` gets the folded weights. Sizes that depend on data
    have names then, so that later ops can be written for them.
    """
    passes = [*named([*(PASSES if folded else UNFOLDED)]), NameSizes()]
    run_passes(graph, passes, Context(params), [])
