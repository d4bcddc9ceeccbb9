"""Every stage of a pipeline in files: as text, as a drawing, as a model, and a table of them all.

    00-start.ir  00-start.dot  00-start.__model__  01-fuse_batch_norm.ir  …  passes.jsonl

The model is a program as release 1.8 saves it, so that viewers of such models open each stage.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from compiler.errors import CompileError
from compiler.escape import json_line
from compiler.ir.conversion.graph_to_program import to_program, var_names
from compiler.ir.graph import Graph
from compiler.ir.model_format.program_desc import dump_program
from compiler.ir.program import Program, VarKind
from compiler.ir.text.dot import dot
from compiler.passes.base import Context, Pass
from compiler.passes.observers import Recorder
from compiler.record import Stage

TABLE = "passes.jsonl"
"""A line for each stage: its name, its numbers, what was declined, and the digest of its text."""


class Dump:
    """Writes `00-start.ir`, `01-fuse_batch_norm.ir`, … into a folder, with drawings and models.

    `like` is the program the graph was made of: it lends the models what a graph does not keep.
    A graph that no program can say (the gradient of a loop) has no model; the table says why.
    """

    def __init__(self, folder: Path, like: Program | None = None) -> None:
        self.folder = folder
        self._like = like
        self._recorder = Recorder()

    def start(self, g: Graph, ctx: Context) -> None:
        """Make the folder, begin the table, and write the graph as it came."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / TABLE).write_text("", encoding="utf-8")
        self._recorder.start(g, ctx)
        self._write(g)

    def before(self, each: Pass, g: Graph) -> None:
        """Nothing to see yet."""

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Write the graph the pass left."""
        self._recorder.after(each, g, ctx)
        self._write(g)

    def _write(self, g: Graph) -> None:
        stage = self._recorder.stages[-1]
        stem = self.folder / f"{len(self._recorder.stages) - 1:02d}-{stage.name}"
        stem.with_name(stem.name + ".ir").write_text(stage.text, encoding="utf-8")
        stem.with_name(stem.name + ".dot").write_text(dot(g), encoding="utf-8")
        reason = self._write_model(g, stem.with_name(stem.name + ".__model__"))
        with (self.folder / TABLE).open("a", encoding="utf-8") as table:
            table.write(row(stage, reason) + "\n")

    def _write_model(self, g: Graph, path: Path) -> str:
        """Why there is no model; "" where it was written."""
        try:
            path.write_bytes(dump_program(_model(g, self._like)))
        except CompileError as error:
            return error.message
        return ""


def row(stage: Stage, no_model: str = "") -> str:
    """What the table says of a stage, as JSON; bytes may be an expression of unknown sizes."""
    values = {
        "name": stage.name,
        "ms": round(stage.milliseconds, 3),
        "ops": len(stage.ops),
        "kernels": stage.kernels,
        "bytes": stage.nbytes if isinstance(stage.nbytes, int) else str(stage.nbytes),
        "digest": hashlib.sha256(stage.text.encode()).hexdigest(),
        "missed": [asdict(each) for each in stage.declined],
        **({"no_model": no_model} if no_model else {}),
    }
    return json_line(values)


def _model(g: Graph, like: Program | None) -> Program:
    """The graph as a program between feed and fetch ops, as models are saved."""
    program, names = to_program(g, like), var_names(g)
    block = program.blocks[0]
    block.add_var("feed", kind=VarKind.FEED, persistable=True)
    block.add_var("fetch", kind=VarKind.FETCH, persistable=True)
    for index, var in reversed(list(enumerate(g.feeds()))):
        block.add_op("feed", {"X": ["feed"]}, {"Out": [names[var]]}, {"col": index}, index=0)
    for index, var in enumerate(g.results):
        block.add_op("fetch", {"X": [names[var]]}, {"Out": ["fetch"]}, {"col": index})
    return program
