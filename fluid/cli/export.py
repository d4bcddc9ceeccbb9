"""`fluid export`: a saved model as an ONNX file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from compiler.driver import compile_graph
from compiler.errors import CompileError, ShapeError
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse
from compiler.ir.text.printer import show
from compiler.ir.types import Array, Shape
from compiler.options import Options
from compiler.report.memory import size_text
from compiler.report.table import count
from compiler.support.extras import install
from compiler.support.lazy_loading import load
from fluid.cli.commands.infer import TOLERANCE, tolerance
from fluid.cli.compare import compare, compared
from fluid.cli.inspect import size
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands
from fluid.cli.subject import Subject, add_subject, subject
from fluid.cli.values.arrays import expect_folder
from fluid.cli.values.trials import arrays_for, execute, read_input_arrays
from fluid.onnx import export_graph

EXPORT = """\
Write a saved model as an ONNX file. Feeds and fetches keep their names and open sizes are symbolic;
batch norms and constants are folded into weights. A feed x of sequences becomes two inputs: its
rows, and x@LOD0 with the offsets at which the sequences begin; loops become Loop, branches If. If
ONNX lacks an op, nothing is written and all such ops are listed, with your line where the model has
it. --check runs ONNX Runtime beside this package on the same inputs and prints the differences;
exit code 1 if one is above the tolerance.
"""
EXPORT_EXAMPLES = """\
examples:
  fluid export MODEL_DIR -o model.onnx
  fluid export inference.pdmodel -o model.onnx --check
  fluid export MODEL_DIR -o model.onnx --check --input x=x.npy
  fluid export MODEL_DIR -o model.onnx --shape image=1,3,H,W    open height and width
  fluid export MODEL_DIR -o model.onnx --as-saved     without folding batch norms
"""


def add_export(commands: Subcommands) -> None:
    """Add `export` to the subcommands."""
    command = commands.add_parser(
        "export",
        help="write a saved model as an ONNX file",
        description=EXPORT,
        epilog=EXPORT_EXAMPLES,
    )
    command.set_defaults(command=_export)
    add_subject(command)
    add = command.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the .onnx file to write",
    )
    add("--opset", type=int, metavar="N", help="operator set, 17 or later (default: 17)")
    add("--shape", type=feed_shape, action="append", default=[], metavar="NAME=SIZES",
        help="shape of a feed: x=N,3,640,640; a word is an open size; repeatable")  # fmt: skip
    add("--as-saved", action="store_true", help="fold nothing into the weights")
    add("--check", action="store_true", help="compare with ONNX Runtime")
    add("--input", action="append", default=[], metavar="[NAME=]FILE",
        help="arrays for --check: FILE.npz or NAME=FILE.npy; the others are random")  # fmt: skip
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help="an open size for --check (default: 3)")  # fmt: skip
    add("--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="of --check, relative to the largest magnitude (default: %(default)s)")  # fmt: skip


def _export(args: argparse.Namespace) -> int:
    """Write the file, print what is in it, and compare if asked to."""
    expect_folder(args.output)
    model = _subject(args)
    arrays = arrays_for(model, read_input_arrays(args.input, model), dict(args.size))
    as_saved = parse(show(model.graph)) if args.check else model.graph  # the export changes it
    try:
        proto = export_graph(
            model.graph, dict(arrays.params), args.output, not args.as_saved, args.opset
        )
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error
    nodes, version = count(len(proto.graph.node), "node"), proto.opset_import[0].version
    print(f"{args.output}: {nodes}, {size_text(proto.ByteSize())}, opset {version}")
    if not args.check:
        return 0
    try:
        ours, theirs = results(as_saved, args.output, arrays.feed, dict(arrays.params))
    except CompileError as error:
        error.add_note("  hint: choose the open sizes by --size NAME=NUMBER, or pass --input")
        raise
    differences = compare(ours, theirs, args.tolerance)
    print(compared(differences, "ONNX Runtime"))
    return int(any(each.why for each in differences))


def _subject(args: argparse.Namespace) -> Subject:
    """The model to export. Raises CompileError with a hint where open sizes cannot be."""
    names = args.path, args.model_filename, args.params_filename, args.fetch
    try:
        return subject(*names, dict(args.shape))
    except ShapeError as error:
        error.add_note("  hint: choose the sizes of feeds, such as --shape x=N,3,640,640")
        raise


def feed_shape(text: str) -> tuple[str, Shape]:
    """Parse `--shape`; raises ArgumentTypeError for what is no name and list of sizes.

    >>> feed_shape("x=N,3,640,640")
    ('x', (N, 3, 640, 640))
    """
    name, _, sizes = text.rpartition("=")
    words = [word.strip() for word in sizes.split(",")]
    if not name or not all(word.isidentifier() or word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape: expected NAME=N,3,640,640")
    return name, tuple(int(word) if word.isdecimal() else Dim.named(word) for word in words)


def results(
    graph: Graph, path: Path, feed: Mapping[str, Array], params: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Run a graph here, and its ONNX file in ONNX Runtime; the results of both by name.

    Raises CommandError if ONNX Runtime is not installed or refuses the file.
    """
    try:
        onnxruntime = load(partial(import_module, "onnxruntime"))
    except ImportError as error:
        raise CommandError(f"--check needs ONNX Runtime: {install('onnx')}") from error
    names = [var.label for var in graph.results]
    module = compile_graph(graph, target="numpy", options=Options()).module
    ours = dict(zip(names, execute(module, feed, params), strict=True))
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        inputs = {each.name: feed[each.name] for each in session.get_inputs()}
        theirs = dict(zip(names, session.run(None, inputs), strict=True))
    except Exception as error:
        if "onnxruntime" not in type(error).__module__:
            raise
        raise CommandError(f"ONNX Runtime refuses the file: {error}") from error
    return ours, theirs
