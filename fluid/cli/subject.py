"""The input of `fluid inspect`: a saved model, a training program, or a graph as text.

A folder is a model written by `save_inference_model`; a file is a program as any 1.x release
saves it (`__model__`, `.pdmodel`, `desc.serialize_to_string()`), or the compiler's text format.
In a program without feed and fetch ops, the feeds are the variables read before they are written,
and the fetch is the loss or, without a loss, the variables that no op reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from compiler.driver import declared_graph
from compiler.errors import CompileError, did_you_mean
from compiler.ir.graph import Graph
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.program import Block, OpDesc, OpRole, Program, VarKind
from compiler.ir.text.parser import parse, parse_program
from compiler.ir.types import Array, Shape
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError, SavedModel, add_file_names, load_model
from runtime.files.atomic_saves import reading

GRADIENT = "@GRAD"
TEXT = (".ir", ".txt")
LARGEST = 1 << 30
"""Maximum size in bytes of a program file; programs contain no weights."""


@dataclass(frozen=True)
class Subject:
    """A graph to compile, with its source program, parameter values and saved model, if any."""

    path: Path
    graph: Graph
    program: Program | None = None
    params: Mapping[str, Array] = field(default_factory=dict[str, Array])
    model: SavedModel | None = None


def add_subject(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `subject`."""
    command.add_argument(
        "path", type=Path, metavar="PATH", help="a saved model's folder, a program, or a .ir file"
    )
    add_file_names(command.add_argument)
    command.add_argument(
        "--fetch", action="append", default=[], metavar="NAME",
        help="fetch this variable; repeatable",
    )  # fmt: skip


def add_pass_choice(command: argparse.ArgumentParser) -> None:
    """Add the arguments that choose which passes run."""
    add = command.add_argument
    add("--only", action="append", default=[], metavar="PASS",
        help="run only this pass; repeatable")  # fmt: skip
    add("--disable", action="append", default=[], metavar="PASS", help="skip this pass; repeatable")


def subject(
    path: Path,
    model: str | None = None,
    params: str | None = None,
    fetch: Sequence[str] = (),
    shapes: Mapping[str, Shape] | None = None,
) -> Subject:
    """Read the program at `path`; `model` and `params` are file names as for `load_model`.

    `shapes` are those of feeds that differ from the declared ones. Raises CommandError if nothing
    is there or a fetch or such a feed does not exist, and the errors of reading a corrupt file.
    """
    with reading(path if path.is_dir() else path.parent):
        return _subject(path, model, params, fetch, shapes or {})


def _subject(
    path: Path,
    model: str | None,
    params: str | None,
    fetch: Sequence[str],
    shapes: Mapping[str, Shape],
) -> Subject:
    if path.is_dir():
        return _of_model(path, load_model(path, model, params), fetch, shapes)
    if not path.is_file():
        raise CommandError(
            f"{path} does not exist: expected a saved model, a program or a .ir file"
        )
    if path.stat().st_size > LARGEST:
        raise CommandError(f"{path} has {path.stat().st_size:,d} bytes, too many for a program")
    weights = path.with_suffix(".pdiparams")
    if path.suffix == ".pdmodel" and weights.is_file():
        saved = load_model(path.parent, path.name, weights.name)
        return _of_model(path, saved, fetch, shapes)
    data = path.read_bytes()
    if path.suffix in TEXT:
        return _of_text(path, data.decode("utf-8", errors="replace"), fetch, shapes)
    return _of_program(path, load_program(data, str(path)), fetch, shapes)


def _of_model(
    path: Path, model: SavedModel, fetch: Sequence[str], shapes: Mapping[str, Shape]
) -> Subject:
    feeds = [var.name for var in model.feeds]
    fetches = _known(model.program, fetch) or model.fetch_names
    graph = _graph(model.program, feeds, fetches, shapes)
    return Subject(path, graph, model.program, dict(model.params), model)


def _of_text(path: Path, text: str, fetch: Sequence[str], shapes: Mapping[str, Shape]) -> Subject:
    if _first_word(text) == "program":
        return _of_program(path, parse_program(text, str(path)), fetch, shapes)
    if shapes:
        raise CommandError(f"{path} is a graph, whose shapes are fixed: edit its feed lines")
    if fetch:
        raise CommandError(f"{path} is a graph, whose outputs are fixed: edit its return line")
    return Subject(path, parse(text, str(path)))


def _first_word(text: str) -> str:
    """The first word outside comments."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return first.split(" ")[0]


def _of_program(
    path: Path, program: Program, fetch: Sequence[str], shapes: Mapping[str, Shape]
) -> Subject:
    block = program.blocks[0]
    fetched = _known(program, fetch) or list(_fetches(block))
    return Subject(path, _graph(program, list(_feeds(block)), fetched, shapes), program)


def _graph(
    program: Program, feeds: Sequence[str], fetches: Sequence[str], chosen: Mapping[str, Shape]
) -> Graph:
    """The graph with dynamic feed shapes where none is chosen; CommandError for an unknown feed."""
    for name in chosen:
        if name not in feeds:
            hint = did_you_mean(name, feeds) or f"the feeds are: {', '.join(feeds)}"
            raise CommandError(f"there is no feed {name!r}; {hint}")
    return declared_graph(program, {name: chosen.get(name) for name in feeds}, fetches)


def _known(program: Program, fetch: Sequence[str]) -> list[str]:
    for name in fetch:
        if program.blocks[0].lookup(name) is None:
            hint = did_you_mean(name, program.blocks[0].vars)
            text = f"the program has no variable {name!r} to fetch"
            raise CommandError(f"{text}; {hint}" if hint else text)
    return list(fetch)


def _feeds(block: Block) -> Iterator[str]:
    """The outputs of feed ops; without them, the temporaries that are read before
    written.
    """
    brought = [name for op in block.ops if op.type == "feed" for name in op.writes()]
    seen: set[str] = set()
    for op in block.ops if not brought else ():
        missing = [name for name in op.reads() if name not in seen and _is_temporary(block, name)]
        brought += dict.fromkeys(missing)
        seen.update(op.reads(), op.writes())
    yield from brought


def _fetches(block: Block) -> Iterable[str]:
    """The inputs of fetch ops; without those, the loss; without a loss, the
    variables no op reads.
    """
    taken = [name for op in block.ops if op.type == "fetch" for name in op.reads()]
    if taken:
        return taken
    losses = [name for op in block.ops if op.role & OpRole.LOSS for name in _loss(op)]
    if losses:
        return dict.fromkeys(name for name in losses if block.lookup(name) is not None)
    read = {name for op in block.ops for name in op.reads()}
    written = dict.fromkeys(name for op in block.ops for name in op.writes())
    return [name for name in written if name not in read and _is_temporary(block, name)]


def _loss(op: OpDesc) -> list[str]:
    """The name of the loss, from the op that computes it or the op that starts its gradient."""
    return [name.removesuffix(GRADIENT) for name in op.writes() if name]


def _is_temporary(block: Block, name: str) -> bool:
    var = block.lookup(name)
    return var is not None and var.kind is VarKind.TENSOR and not var.persistable


def kinds(found: Subject) -> list[str]:
    """The op types, without feed and fetch ops.

    Raises CompileError if there are none.
    """
    program = found.program
    ops = found.graph.ops() if program is None else [op for b in program.blocks for op in b.ops]
    names = [op.type if isinstance(op, OpDesc) else op.kind for op in ops]
    shown = [name for name in names if name not in ("feed", "fetch")]
    if not shown:
        raise CompileError(f"{found.path} has no ops", hint="was it saved before layers were made?")
    return shown
