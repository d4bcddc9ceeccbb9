"""`fluid compare`: compare two programs or compiler stages, value by value."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.codegen.module import Module
from compiler.debugging.compare import compare, comparison_text
from compiler.debugging.values import RunValues, inputs, numbers, repeatable
from compiler.errors import ParseError
from compiler.ir.types import Array
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import OPTIONAL, left_out, pipeline
from compiler.support.dataclass import dataclass
from fluid.cli.commands.infer import TOLERANCE, tolerance
from fluid.cli.inspect import size
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands
from fluid.cli.subject import Subject, subject
from fluid.cli.values.trials import TrialArrays, arrays_for, execute, read_input_arrays

COMPARE = """\
Run two programs on the same inputs and show the first and the largest differences. Values are
matched by name. Each program may be the folder of a saved model, a program file, a graph as text
(.ir, such as a stage of fluid inspect --dump) or a generated module (.py, which is executed, and of
which only the results are compared). With one path, the unmodified program is compared with the
program after all passes.

PASSES is 'none', 'all', a comma-separated list of names, or 'all' and names with a minus:
all,-fuse_pointwise.

Exit code: 0 if the results agree, 1 if they differ, 2 for an error in the command.
"""
COMPARE_EXAMPLES = """\
examples:
  fluid compare out/demo/model                       before and after all passes
  fluid compare out/demo/model out/demo/model --a all --b all,-fuse_batch_norm
  fluid compare out/demo/train/00-start.ir out/demo/train/13-fuse_pointwise.ir
  fluid compare out/demo/train/00-start.ir out/demo/train/main.py
"""


@dataclass(frozen=True)
class _Side:
    """A program with the passes to run on it, or a generated module."""

    path: Path
    passes: Options | None
    found: Subject | None = None
    module: Module | None = None


def add_compare(commands: Subcommands) -> None:
    """Add `compare` to the subcommands."""
    command = commands.add_parser(
        "compare",
        help="run two programs or stages and show the first difference",
        description=COMPARE,
        epilog=COMPARE_EXAMPLES,
    )
    command.set_defaults(command=run_compare)
    add = command.add_argument
    add("ours", type=Path, metavar="A", help="a saved model's folder, a program, .ir, or .py")
    add("theirs", type=Path, metavar="B", nargs="?", help="another one (default: A)")
    add("--a", metavar="PASSES", default="none", help="passes to run on A (default: %(default)s)")
    add("--b", metavar="PASSES", help="passes to run on B (default: none, or all without B)")
    add(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="fetch this variable; repeatable",
    )
    add("--input", action="append", default=[], metavar="[NAME=]FILE",
        help="arrays of feeds or parameters: FILE.npz or NAME=FILE.npy; repeatable")  # fmt: skip
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help="value of a dynamic dim that no array determines (default: 3)")  # fmt: skip
    add("--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="tolerance relative to the largest magnitude in B (default: %(default)s)")  # fmt: skip
    add(
        "--show",
        type=int,
        default=5,
        metavar="N",
        help="number of differences to show (default: %(default)s)",
    )


def run_compare(given: argparse.Namespace) -> int:
    """Run both programs and print their differences; exit code 1 where results differ."""
    passes = given.b or ("none" if given.theirs else "all")
    ours = _side(given.ours, given.a, given.fetch)
    theirs = _side(given.theirs or given.ours, passes, given.fetch)
    arrays = _arrays(
        ours, theirs, read_input_arrays(given.input, ours.found or theirs.found), dict(given.size)
    )
    comparison = compare(_numbers(ours, arrays), _numbers(theirs, arrays), given.tolerance)
    if not comparison.left:
        raise CommandError("the two have no result and no state of the same name: see --fetch")
    print(f"A  {ours.path}  {given.a}\nB  {theirs.path}  {passes}\n")
    print(comparison_text(comparison, given.show))
    return 0 if comparison.agrees else 1


def _side(path: Path, passes: str, fetch: Sequence[str]) -> _Side:
    chosen = _passes(passes)
    if path.suffix != ".py":
        model = subject(path, fetch=fetch)
        repeatable(model.graph)
        return _Side(path, chosen, model)
    if chosen is not None:
        raise CommandError(f"{path} is a module: passes cannot run on generated code")
    if not path.is_file():
        raise CommandError(f"{path} does not exist")
    try:
        return _Side(path, None, module=Module.load(path))
    except ParseError as error:
        raise CommandError(f"{path}: {error}") from error


def _passes(text: str) -> Options | None:
    """Parse the value of `--a` or `--b` into pass options; None for no passes."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    less = [name[1:] for name in names if name.startswith("-")]
    more = [name for name in names if not name.startswith("-")]
    if more == ["none"] and not less:
        return None
    pass_names = [pass_.name for pass_ in OPTIONAL]
    try:
        only = [] if more in ([], ["all"]) else more
        return Options(disable=left_out(less, only or pass_names))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _arrays(
    ours: _Side, theirs: _Side, given: Mapping[str, Array], sizes: Mapping[str, int]
) -> TrialArrays:
    """One array per name, shared by both: given by the user, from a model, or generated."""
    sides = [side.found for side in (ours, theirs) if side.found is not None]
    if not sides:
        raise CommandError(
            "expected at least one program or graph: generated modules do not declare their feeds"
        )
    arrays = _known(sides, given)
    _expect_shared(sides, arrays)
    merged = TrialArrays({}, {})
    for model in reversed(sides):
        own = {name: arrays[name] for name in arrays if _has(model, name)}
        arrays_of_model = arrays_for(
            model, own, {s: n for s, n in sizes.items() if _is_open(model, s)}
        )
        merged = TrialArrays(
            {**merged.feed, **arrays_of_model.feed}, {**merged.params, **arrays_of_model.params}
        )
    return merged


def _expect_shared(sides: Sequence[Subject], known: Mapping[str, Array]) -> None:
    """Raise CommandError for a feed or parameter that only one of the two has and that is not
    known, such as weights that a pass folded: a generated array would make the comparison
    meaningless.
    """
    for model, other in ((sides[0], sides[-1]), (sides[-1], sides[0])):
        for var in (*model.graph.feeds(), *(v for v in model.graph.params() if not v.version)):
            if var.name not in known and not _has(other, var.name):
                raise CommandError(
                    f"{model.path} reads {var.name!r}, which {other.path} does not have: pass it "
                    f"with --input {var.name}=FILE.npy, or run the passes here, with --b"
                )


def _known(sides: Sequence[Subject], given: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays the user passed and those of the models."""
    for name in given:
        if not any(_has(model, name) for model in sides):
            raise CommandError(f"neither program has a feed or state {name!r}")
    arrays = {name: array for model in reversed(sides) for name, array in model.params.items()}
    return arrays | dict(given)


def _has(found: Subject, name: str) -> bool:
    return any(var.name == name for var in (*found.graph.feeds(), *found.graph.params()))


def _is_open(found: Subject, name: str) -> bool:
    vars = (*found.graph.feeds(), *found.graph.params())
    return any(name in var.type.names for var in vars)


def _numbers(side: _Side, arrays: TrialArrays) -> RunValues:
    """Compute the values of one side; passes see parameter values if it is a saved
    model.
    """
    try:
        return _of_module(side.module, arrays) if side.module else _of_graph(side, arrays)
    except KeyError as error:
        raise CommandError(
            f"{side.path} needs {error}, which has no value: pass it with --input"
        ) from error


def _of_module(module: Module, arrays: TrialArrays) -> RunValues:
    params = {name: array.copy() for name, array in arrays.params.items()}
    for param in (each for each in module.params if each.name not in params):
        raise KeyError(param.name)
    results = execute(module, arrays.feed, params)
    changed = {param.name: params[param.name] for param in module.params if param.name in params}
    left = {tensor.name: array for tensor, array in zip(module.fetches, results, strict=True)}
    return RunValues({}, left | changed)


def _of_graph(side: _Side, arrays: TrialArrays) -> RunValues:
    assert side.found is not None
    graph = side.found.graph
    params = {name: array.copy() for name, array in arrays.params.items()}
    if side.passes is not None:
        params_if_model = params if side.found.model is not None else None
        run_passes(graph, pipeline(side.passes), Context(params_if_model))
    missing = [v for v in graph.params() if not v.version and v.name not in params]
    return numbers(graph, arrays.feed, params | inputs(missing, {}, {}))
