"""Dump of every stage of a pipeline to files: text, drawing, model, and a table of all stages.

    00-start.ir  00-start.dot  00-start.__model__  01-fuse_batch_norm.ir  …  passes.jsonl

The model is a program in the format of release 1.8, so that viewers of such models open each stage.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from compiler.errors import CompileError
from compiler.ir.conversion.graph_to_program import to_program, var_names
from compiler.ir.graph import Graph
from compiler.ir.model_format.program_desc import dump_program
from compiler.ir.program import Program, VarKind
from compiler.ir.text.dot import dot
from compiler.passes.base import Context, Pass
from compiler.passes.observers import Recorder
from compiler.record import Stage
from compiler.support.escape import json_line
from compiler.support.text_files import append_line, write_bytes, write_text

TABLE = "passes.jsonl"
"""A line per stage: name, numbers, missed optimisations, and the digest of its text."""


class Dump:
    """Observer that writes `00-start.ir`, `01-fuse_batch_norm.ir`, … into a folder, with drawings
    and models.

    `like` is the program that the graph was converted from: it provides what a graph does not
    contain. A graph that no program can express (the gradient of a loop) has no model; the table
    has the reason.
    """

    def __init__(self, folder: Path, like: Program | None = None) -> None:
        self.folder = folder
        self._like = like
        self._recorder = Recorder()

    def start(self, g: Graph, ctx: Context) -> None:
        """Create the folder and the table, and write the initial graph."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / TABLE, "")
        self._recorder.start(g, ctx)
        self._write(g)

    def before(self, each: Pass, g: Graph) -> None:
        """Do nothing."""

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Write the graph after the pass."""
        self._recorder.after(each, g, ctx)
        self._write(g)

    def _write(self, g: Graph) -> None:
        stage = self._recorder.stages[-1]
        stem = self.folder / f"{len(self._recorder.stages) - 1:02d}-{stage.name}"
        write_text(stem.with_name(stem.name + ".ir"), stage.text)
        write_text(stem.with_name(stem.name + ".dot"), dot(g))
        reason = self._write_model(g, stem.with_name(stem.name + ".__model__"))
        append_line(self.folder / TABLE, row(stage, reason))

    def _write_model(self, g: Graph, path: Path) -> str:
        """Return why there is no model; empty if it was written."""
        try:
            model = dump_program(_model(g, self._like))
        except CompileError as error:
            return error.message
        write_bytes(path, model)
        return ""


def row(stage: Stage, no_model: str = "") -> str:
    """Return the table row of a stage as JSON; bytes may be an expression of symbolic sizes."""
    values = {
        "name": stage.name,
        "ms": round(stage.milliseconds, 3),
        "ops": len(stage.ops),
        "kernels": stage.kernels,
        "bytes": stage.nbytes if isinstance(stage.nbytes, int) else str(stage.nbytes),
        "digest": hashlib.sha256(stage.text.encode()).hexdigest(),
        "missed": [asdict(note) for note in stage.missed],
        **({"no_model": no_model} if no_model else {}),
    }
    return json_line(values)


def _model(g: Graph, like: Program | None) -> Program:
    """Convert the graph to a program between feed and fetch ops, as models are saved."""
    program, names = to_program(g, like), var_names(g)
    block = program.blocks[0]
    block.add_var("feed", kind=VarKind.FEED, persistable=True)
    block.add_var("fetch", kind=VarKind.FETCH, persistable=True)
    for index, var in reversed(list(enumerate(g.feeds()))):
        block.add_op("feed", {"X": ["feed"]}, {"Out": [names[var]]}, {"col": index}, index=0)
    for index, var in enumerate(g.results):
        block.add_op("fetch", {"X": [names[var]]}, {"Out": ["fetch"]}, {"col": index})
    return program
