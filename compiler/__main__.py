"""`python -m compiler FILE.ir`: start in the middle of the street, with a graph in a file.

The graph is read, passes run over it, and what it became is printed: as a graph again, as a plan,
as a Python module or as a drawing. Nothing of `fluid` is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compiler.codegen.numpy import NumpyTarget
from compiler.debugging.explanation import study_graph
from compiler.errors import ParseError
from compiler.escape import one_line, printable_lines
from compiler.freeze import freeze
from compiler.ir.graph import Graph
from compiler.ir.text.dot import dot
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.dump import Dump
from compiler.passes.manager import Observer, run_passes
from compiler.passes.pipeline import PASSES, left_out, named, pipeline

EMITTERS: Mapping[str, Callable[[Graph], str]] = {
    "ir": show,
    "plan": lambda g: str(freeze(g)),
    "py": lambda g: NumpyTarget().emit(freeze(g)).source,
    "dot": dot,
}
"""What a graph can be printed as."""

EXAMPLES = f"""\
passes, in the order of the full pipeline:
  {" ".join(each.name for each in PASSES)}

examples:
  python -m compiler x.ir                                   the graph after every pass
  python -m compiler x.ir --run '' --emit dot | dot -Tsvg   a drawing of it as it is
  python -m compiler x.ir --run fold_constants,eliminate_dead --emit plan
  python -m compiler x.ir --emit py -o x.py && python x.py  a module that runs by itself
  python -m compiler x.ir --html x.html --disable schedule  a page about all passes but one
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 2 after a message for what cannot be read, run or written."""
    given = _parser().parse_args(arguments)
    try:
        missed = _answer(given)
    except (OSError, ValueError) as error:
        print(f"compiler: {printable_lines(_message(error))}", file=sys.stderr)
        return 2
    for refusal in missed:
        print(f"refused by {one_line(refusal)}", file=sys.stderr)
    return 0


def _answer(given: argparse.Namespace) -> tuple[str, ...]:
    """Do what was asked for; what the passes refused, and why."""
    options = _options(given)
    if given.html is not None:
        return _write_page(given, options)
    passes = pipeline(options) if given.run is None else named(_names(given.run))
    watching = [] if given.dump is None else [Dump(given.dump)]
    text = _read(given.file)
    made, missed = convert(text, given.file, passes, given.emit or "ir", watching)
    if given.dump is None or given.emit or given.output:
        _write(given.output, made)
    return missed


def convert(
    text: str, file: str, passes: Sequence[Pass], emit: str, observers: Sequence[Observer] = ()
) -> tuple[str, tuple[str, ...]]:
    """A graph's text after passes, as one of `EMITTERS`, and what the passes refused, and why.

    Raises ParseError naming `file` and the line, and what running the passes raises.
    """
    graph, context = parse(text, file), Context()
    run_passes(graph, passes, context, observers)
    return EMITTERS[emit](graph), tuple(map(str, context.missed))


def _write_page(given: argparse.Namespace, options: Options) -> tuple[str, ...]:
    """The page about a compilation, and its dumps; all the way, since the page shows the module."""
    if given.run is not None:
        raise ValueError("--html shows a whole compilation: choose passes by --only or --disable")
    graph = parse(_read(given.file), given.file)
    names = {name for var in graph.feeds() for name in var.type.names}
    title = f"{Path(given.file).name}: {len(graph)} ops"
    sizes = dict.fromkeys(names, options.typical)
    seen = study_graph(title, graph, sizes, options=options, dump=given.dump)
    seen.save(given.html)
    return tuple(map(str, seen.compiled.context.missed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m compiler",
        description="Run passes over a graph in a file and print what it became.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.ir", help="a graph as text; - reads standard input")
    parser.add_argument(
        "--run", metavar="PASS,PASS", help="passes in this order; the full pipeline if not given"
    )
    parser.add_argument("--only", default="", metavar="PASS,PASS", help="of the pipeline, these")
    parser.add_argument("--disable", default="", metavar="PASS,PASS", help="leave these out")
    parser.add_argument("--stop-after", metavar="PASS", help="leave out those behind this one")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write every stage in files")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page about all passes")
    parser.add_argument("--emit", choices=EMITTERS, help="graph, plan, module or drawing (ir)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here instead of printing")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _options(given: argparse.Namespace) -> Options:
    """The settings of the environment, without the passes that were asked to be left out."""
    options = Options.from_env()
    off = [*options.disable, *_names(given.disable)]
    return replace(options, disable=left_out(off, _names(given.only), given.stop_after))


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{file}: not a text: {error.reason} at byte {error.start}") from error


def _write(output: str | None, text: str) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        Path(output).write_text(text, encoding="utf-8")


def _message(error: OSError | ValueError) -> str:
    """What went wrong, in words, with the notes that passes add."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return "\n  ".join([text, *getattr(error, "__notes__", ())])


if __name__ == "__main__":
    sys.exit(main())
