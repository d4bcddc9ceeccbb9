"""`python -m compiler FILE.ir`: run passes over a graph in a file and print the result.

The output is a graph again, a plan, a Python module or a DOT drawing. `fluid` is not needed.
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
from compiler.freeze import freeze
from compiler.ir.graph import Graph
from compiler.ir.text.dot import dot
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.dump import Dump
from compiler.passes.manager import Observer, run_passes
from compiler.passes.pipeline import OPTIONAL, left_out, named, pipeline
from compiler.support.escape import one_line, printable_lines
from compiler.support.text_files import write_text

EMITTERS: Mapping[str, Callable[[Graph], str]] = {
    "ir": show,
    "plan": lambda g: str(freeze(g)),
    "py": lambda g: NumpyTarget().emit(freeze(g)).source,
    "dot": dot,
}
"""Printers of a graph, by the value of `--emit`."""

EXAMPLES = f"""\
passes, in the order of the full pipeline:
  {" ".join(optional.name for optional in OPTIONAL)}

examples:
  python -m compiler x.ir                                   the graph after every pass
  python -m compiler x.ir --run '' --emit dot | dot -Tsvg   a drawing of the unchanged graph
  python -m compiler x.ir --run fold_constants,eliminate_dead --emit plan
  python -m compiler x.ir --emit py -o x.py && python x.py  a standalone module
  python -m compiler x.ir --html x.html --disable schedule  a page of all passes but one
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after a message if a file cannot be read, run or
    written.
    """
    parsed = _parser().parse_args(arguments)
    try:
        missed = _execute(parsed)
    except (OSError, ValueError) as error:
        print(f"compiler: {printable_lines(_message(error))}", file=sys.stderr)
        return 2
    for optimisation in missed:
        print(f"missed optimisation: {one_line(optimisation)}", file=sys.stderr)
    return 0


def _execute(parsed: argparse.Namespace) -> tuple[str, ...]:
    """Execute the command line; return the missed optimisations as text."""
    options = _options(parsed)
    if parsed.html is not None:
        return _write_page(parsed, options)
    passes = pipeline(options) if parsed.run is None else named(_names(parsed.run))
    observers = [] if parsed.dump is None else [Dump(parsed.dump)]
    text = _read(parsed.file)
    output, missed = convert(text, parsed.file, passes, parsed.emit or "ir", observers)
    if parsed.dump is None or parsed.emit or parsed.output:
        _write(parsed.output, output)
    return missed


def convert(
    text: str, file: str, passes: Sequence[Pass], emit: str, observers: Sequence[Observer] = ()
) -> tuple[str, tuple[str, ...]]:
    """Return a graph's text after passes, as one of `EMITTERS`, and the missed optimisations.

    Raises ParseError naming `file` and the line, and whatever the passes raise.
    """
    graph, context = parse(text, file), Context()
    run_passes(graph, passes, context, observers)
    return EMITTERS[emit](graph), tuple(map(str, context.missed))


def _write_page(parsed: argparse.Namespace, options: Options) -> tuple[str, ...]:
    """Write the HTML page of a full compilation, and its dumps; return missed optimisations."""
    if parsed.run is not None:
        raise ValueError("--html shows a full compilation: select passes by --only or --disable")
    graph = parse(_read(parsed.file), parsed.file)
    names = {name for var in graph.feeds() for name in var.type.names}
    title = f"{Path(parsed.file).name}: {len(graph)} ops"
    sizes = dict.fromkeys(names, options.typical)
    study = study_graph(title, graph, sizes, options=options, dump=parsed.dump)
    study.save(parsed.html)
    return tuple(map(str, study.compiled.context.missed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m compiler",
        description="Run passes over the graph in a file and print the result.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.ir", help="a graph as text; - for standard input")
    parser.add_argument(
        "--run", metavar="PASS,PASS", help="run these passes in this order; default: all"
    )
    parser.add_argument("--only", default="", metavar="PASS,PASS", help="run only these passes")
    parser.add_argument("--disable", default="", metavar="PASS,PASS", help="skip these passes")
    parser.add_argument("--stop-after", metavar="PASS", help="skip the passes after this one")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write every stage to files")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page")
    parser.add_argument("--emit", choices=EMITTERS, help="what to print; default: ir")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _options(parsed: argparse.Namespace) -> Options:
    """Return the options of the environment plus the passes that the command line disables."""
    options = Options.from_env()
    disabled = [*options.disable, *_names(parsed.disable)]
    return replace(options, disable=left_out(disabled, _names(parsed.only), parsed.stop_after))


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{file}: not UTF-8 text: {error.reason} at byte {error.start}") from error


def _write(output: str | None, text: str) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(Path(output), text)


def _message(error: OSError | ValueError) -> str:
    """Return an error's message with its notes, which passes add."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return "\n  ".join([text, *getattr(error, "__notes__", ())])


if __name__ == "__main__":
    sys.exit(main())
