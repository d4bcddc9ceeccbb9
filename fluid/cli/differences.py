"""`fluid compare`: two programs or stages, value by value."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.codegen.module import Module
from compiler.debugging.compare import compare, comparison_text
from compiler.debugging.values import Numbers, inputs, numbers, repeatable
from compiler.errors import ParseError
from compiler.ir.types import Array
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import PASSES, left_out, pipeline
from fluid.cli.infer_arguments import TOLERANCE, tolerance
from fluid.cli.inspect import size
from fluid.cli.model import CommandError
from fluid.cli.subject import Subject, subject
from fluid.cli.values.trials import Arrays, arrays_for, execute, read_given

COMPARE = """\
Run two programs on the same numbers and tell where they first differ, and where most. Values meet
by name. Each may be a saved model's folder, a program, a graph as text (.ir, such as a stage that
fluid inspect --dump wrote) or a generated module (.py, which is run, and of which only results are
seen). With one path, the program as it is stands beside what the passes make of it.

PASSES are 'none', 'all', names with commas between, or 'all' and names with a minus before them:
all,-fuse_pointwise.

The exit code is 0 where results agree, 1 where they do not, 2 for what is wrong with the command.
"""
COMPARE_EXAMPLES = """\
examples:
  fluid compare out/demo/model                       as it is, and behind all passes
  fluid compare stages/00-start.ir stages/03-fuse_batch_norm.ir --input stages.npz
  fluid compare model model --a all --b all,-fuse_batch_norm
  fluid compare stages/00-start.ir stages/main.py
"""


@dataclass(frozen=True)
class _Side:
    """A program to run, or a module; and the passes that run over it."""

    path: Path
    passes: Options | None
    found: Subject | None = None
    module: Module | None = None


def add_compare(commands: Any) -> None:
    """Let the command line take `compare`."""
    command = commands.add_parser(
        "compare",
        help="run two programs or stages and tell where they first differ",
        description=COMPARE,
        epilog=COMPARE_EXAMPLES,
    )
    command.set_defaults(command=run_compare)
    add = command.add_argument
    add("ours", type=Path, metavar="A", help="a saved model's folder, a program, .ir, or .py")
    add("theirs", type=Path, metavar="B", nargs="?", help="another; A again if it is left out")
    add("--a", metavar="PASSES", default="none", help="what runs over A (%(default)s)")
    add("--b", metavar="PASSES", help="what runs over B (none; all where it is left out)")
    add("--fetch", action="append", default=[], metavar="NAME", help="look at this instead")
    add("--input", action="append", default=[], metavar="[NAME=]FILE",
        help="arrays of feeds or state: a .npz, or NAME= and a .npy; repeatable")  # fmt: skip
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help="what an open size is where no array says it (3)")  # fmt: skip
    add("--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="how far apart numbers may be, by the largest of B's (%(default)s)")  # fmt: skip
    add("--show", type=int, default=5, metavar="N", help="how many differences (%(default)s)")


def run_compare(given: argparse.Namespace) -> int:
    """Run both and print where they differ; 1 where results do."""
    passes = given.b or ("none" if given.theirs else "all")
    ours = _side(given.ours, given.a, given.fetch)
    theirs = _side(given.theirs or given.ours, passes, given.fetch)
    arrays = _arrays(ours, theirs, read_given(given.input), dict(given.size))
    found = compare(_numbers(ours, arrays), _numbers(theirs, arrays), given.tolerance)
    if not found.left:
        raise CommandError("the two leave no result and no state of the same name: see --fetch")
    print(f"A  {ours.path}  {given.a}\nB  {theirs.path}  {passes}\n")
    print(comparison_text(found, given.show))
    return 0 if found.agrees else 1


def _side(path: Path, passes: str, fetch: Sequence[str]) -> _Side:
    chosen = _passes(passes)
    if path.suffix != ".py":
        found = subject(path, fetch=fetch)
        repeatable(found.graph)
        return _Side(path, chosen, found)
    if chosen is not None:
        raise CommandError(f"{path} is a module: no pass can run over it any more")
    if not path.is_file():
        raise CommandError(f"{path} is not there")
    try:
        return _Side(path, None, module=Module.load(path))
    except ParseError as error:
        raise CommandError(f"{path}: {error}") from error


def _passes(text: str) -> Options | None:
    """The options for passes as `--a` has them; None for none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    less = [name[1:] for name in names if name.startswith("-")]
    more = [name for name in names if not name.startswith("-")]
    if more == ["none"] and not less:
        return None
    known = [each.name for each in PASSES]
    try:
        only = [] if more in ([], ["all"]) else more
        return Options(disable=left_out(less, only or known))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _arrays(
    ours: _Side, theirs: _Side, given: Mapping[str, Array], sizes: Mapping[str, int]
) -> Arrays:
    """One array for each name, for both: of what is given, of a model, or made up."""
    sides = [side.found for side in (ours, theirs) if side.found is not None]
    if not sides:
        raise CommandError("give one program or graph: two modules alone do not say their feeds")
    known = _known(sides, given)
    _expect_shared(sides, known)
    made = Arrays({}, {})
    for found in reversed(sides):
        own = {name: known[name] for name in known if _has(found, name)}
        each = arrays_for(found, own, {s: n for s, n in sizes.items() if _is_open(found, s)})
        made = Arrays({**made.feed, **each.feed}, {**made.params, **each.params})
    return made


def _expect_shared(sides: Sequence[Subject], known: Mapping[str, Array]) -> None:
    """CommandError for what only one of two is fed or keeps, such as weights that a pass folded:
    a made-up array for it would say nothing.
    """
    for found, other in ((sides[0], sides[-1]), (sides[-1], sides[0])):
        for var in (*found.graph.feeds(), *(v for v in found.graph.params() if not v.version)):
            if var.name not in known and not _has(other, var.name):
                raise CommandError(
                    f"{found.path} reads {var.name!r}, which {other.path} has not: give it by "
                    f"--input {var.name}=FILE.npy, or let the passes run here, by --b"
                )


def _known(sides: Sequence[Subject], given: Mapping[str, Array]) -> dict[str, Array]:
    """What is given, and what models hold."""
    for name in given:
        if not any(_has(found, name) for found in sides):
            raise CommandError(f"neither program has a feed or state {name!r}")
    held = {name: array for found in reversed(sides) for name, array in found.params.items()}
    return held | dict(given)


def _has(found: Subject, name: str) -> bool:
    return any(var.name == name for var in (*found.graph.feeds(), *found.graph.params()))


def _is_open(found: Subject, name: str) -> bool:
    vars = (*found.graph.feeds(), *found.graph.params())
    return any(name in var.type.names for var in vars)


def _numbers(side: _Side, arrays: Arrays) -> Numbers:
    """What a side computes, for passes with the state known where it came with a model."""
    try:
        return _of_module(side.module, arrays) if side.module else _of_graph(side, arrays)
    except KeyError as error:
        raise CommandError(
            f"{side.path} needs {error}, which nobody has: give it by --input"
        ) from error


def _of_module(module: Module, arrays: Arrays) -> Numbers:
    params = {name: array.copy() for name, array in arrays.params.items()}
    results = execute(module, arrays.feed, params)
    changed = {each.name: params[each.name] for each in module.params if each.name in params}
    left = {each.name: array for each, array in zip(module.fetches, results, strict=True)}
    return Numbers({}, left | changed)


def _of_graph(side: _Side, arrays: Arrays) -> Numbers:
    assert side.found is not None
    graph = side.found.graph
    params = {name: array.copy() for name, array in arrays.params.items()}
    if side.passes is not None:
        lent = params if side.found.model is not None else None
        run_passes(graph, pipeline(side.passes), Context(lent))
    missing = [v for v in graph.params() if not v.version and v.name not in params]
    return numbers(graph, arrays.feed, params | inputs(missing, {}, {}))
