"""`python -m compiler FILE.ir`: start in the middle of the street, with a graph in a file.

The graph is read, passes run over it, and what it became is printed: as a graph again, as a plan,
as a Python module or as a drawing. Nothing of `fluid` is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compiler.codegen.numpy import NumpyTarget
from compiler.errors import ParseError
from compiler.freeze import freeze
from compiler.ir.draw import dot
from compiler.ir.graph import Graph
from compiler.ir.text import parse, show
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import PASSES, named, pipeline

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
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 2 after a message for what cannot be read, run or written."""
    given = _parser().parse_args(arguments)
    try:
        text, refusals = convert(_read(given.file), given.file, _passes(given.run), given.emit)
        _write(given.output, text)
    except (OSError, ValueError) as error:
        print(f"compiler: {_message(error)}", file=sys.stderr)
        return 2
    for refusal in refusals:
        print(f"refused by {refusal}", file=sys.stderr)
    return 0


def convert(text: str, file: str, passes: Sequence[Pass], emit: str) -> tuple[str, tuple[str, ...]]:
    """A graph's text after passes, as one of `EMITTERS`, and what the passes refused, and why.

    Raises ParseError naming `file` and the line, and what running the passes raises.
    """
    graph, context = parse(text, file), Context()
    run_passes(graph, passes, context)
    return EMITTERS[emit](graph), tuple(map(str, context.refusals))


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
    parser.add_argument(
        "--emit", choices=EMITTERS, default="ir", help="graph, plan, module or drawing (ir)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write here instead of printing")
    return parser


def _passes(run: str | None) -> list[Pass]:
    if run is None:
        return pipeline(Options.from_env())
    return named([name.strip() for name in run.split(",") if name.strip()])


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
