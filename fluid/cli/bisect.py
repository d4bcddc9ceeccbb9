"""`fluid bisect`: the first pass that changes a value, the op it changes, and a minimal program."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from compiler.debugging.bisect import CODE, Finding, Trial, bisect
from compiler.debugging.values import RunValue, repeatable
from compiler.driver import TARGETS
from compiler.options import Options
from compiler.passes.pipeline import left_out
from compiler.report.table import count
from compiler.support.text_files import write_text
from fluid.cli.commands.infer import TOLERANCE, tolerance
from fluid.cli.inspect import size
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands
from fluid.cli.subject import add_pass_choice, add_subject, subject
from fluid.cli.values.arrays import write_arrays
from fluid.cli.values.trials import arrays_for, execute, read_input_arrays

BISECT = """\
Find the first compiler pass that changes a value, and the op at which it does; then write a minimal
program that reproduces it, with its input arrays. The reference values come from running the
program op by op without any pass. After the passes, the generated code is compared the same way.

Inputs that are not given are generated, and are the same in every run. Passes see the parameter
values of a saved model, so batch norms and constants are folded; for other
programs use --constant-params.

Exit code: 0 if every stage agrees, 1 if one does not, 2 for an error in the command, the program or
its inputs.
"""
BISECT_EXAMPLES = """\
examples:
  fluid bisect out/demo/model --input out/demo/digits.npy
  fluid bisect train.pdmodel --input x=x.npy --tolerance 1e-3
  fluid bisect train.pdmodel --disable fuse_pointwise     does it still differ without that pass?
  fluid bisect smallest.ir --input smallest.npz --only fold_constants --constant-params
"""


def add_bisect(commands: Subcommands) -> None:
    """Add `bisect` to the subcommands."""
    command = commands.add_parser(
        "bisect",
        help="find the first pass and op that change a value",
        description=BISECT,
        epilog=BISECT_EXAMPLES,
    )
    command.set_defaults(command=run_bisect)
    add_subject(command)
    add = command.add_argument
    add("--input", action="append", default=[], metavar="[NAME=]FILE",
        help="arrays of feeds or parameters: FILE.npz or NAME=FILE.npy; repeatable")  # fmt: skip
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help="value of a dynamic dim that no array determines (default: 3)")  # fmt: skip
    add("--tolerance", type=tolerance, default=TOLERANCE, metavar="T",
        help="tolerance relative to an array's largest magnitude (%(default)s)")  # fmt: skip
    add(
        "--target",
        choices=sorted(TARGETS),
        default="numpy",
        help="code to generate (default: %(default)s)",
    )
    add(
        "--constant-params",
        action="store_true",
        help="let passes see the parameter values, as for a saved model",
    )
    add_pass_choice(command)
    add("--out", type=Path, default=Path("smallest.ir"), metavar="FILE",
        help="minimal program; its arrays go to a .npz next to it (%(default)s)")  # fmt: skip


def run_bisect(given: argparse.Namespace) -> int:
    """Bisect, print the result and write the minimal program; exit code 1 where a stage differs."""
    if given.out.suffix != ".ir":
        raise CommandError(f"--out {given.out} must end in .ir")
    model = subject(given.path, given.model_filename, given.params_filename, given.fetch)
    arrays = arrays_for(model, read_input_arrays(given.input, model), dict(given.size))
    repeatable(model.graph)
    constant_params = given.constant_params or model.model is not None
    runs = execute if given.target == "numpy" else None
    trial = Trial(_options(given), given.target, given.tolerance, constant_params, runs)
    seen = bisect(model.graph, arrays.feed, arrays.params, trial, _log)
    if seen is None:
        stages = "every pass, and the code," if runs else "every pass"
        print(f"{given.path}: {stages} keeps all numbers within {given.tolerance:g}")
        return 0
    command = _again(given, seen, constant_params)
    _write(given.out, seen, command)
    print(_report(given, seen, command))
    return 1


def _log(line: str) -> None:
    print(f"fluid bisect: {line}", file=sys.stderr, flush=True)


def _options(given: argparse.Namespace) -> Options:
    options = Options.from_env()
    try:
        off = left_out([*options.disable, *given.disable], given.only)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return replace(options, disable=off, dump=None, check=0)


def _again(given: argparse.Namespace, seen: Finding, constant_params: bool) -> str:
    """The command that reproduces the failure with the minimal program."""
    words = ["fluid", "bisect", str(given.out), "--input", str(given.out.with_suffix(".npz"))]
    if not (seen.feed or seen.params):
        words = words[:3]
    alone = left_out(given.disable, [] if seen.fault.stage == CODE else [seen.fault.stage])
    if seen.options.disable >= alone and seen.fault.stage != CODE:
        words += ["--only", seen.fault.stage]
    else:
        words += [word for name in sorted(seen.options.disable) for word in ("--disable", name)]
    words += ["--tolerance", f"{given.tolerance:g}"] if given.tolerance != TOLERANCE else []
    words += ["--target", given.target] if given.target != "numpy" else []
    words += ["--constant-params"] if constant_params else []
    return shlex.join(words)


def _write(path: Path, seen: Finding, command: str) -> None:
    """Write the minimal program, with a comment about what it shows, and its arrays."""
    difference = seen.fault.difference
    lines = [
        f"// {seen.fault.stage}: {difference.name!r}: {difference.why}",
        f"// {command}",
        seen.program,
    ]
    write_text(path, "\n".join(lines))
    if seen.feed or seen.params:
        write_arrays(path.with_suffix(".npz"), {**seen.feed, **seen.params})


def _report(given: argparse.Namespace, seen: Finding, command: str) -> str:
    fault, (of, needed) = seen.fault, seen.ops
    moved = fault.difference
    far = f", by up to {moved.largest:.3g}" if moved.largest != float("inf") else ""
    kind = "stage" if fault.stage == CODE else "pass"
    op = _line(seen.op)
    if seen.became is not None and seen.became.op != seen.op.op:
        op += f"\nbecame   {_line(seen.became)}"
    return (
        f"{kind:9}{fault.stage}\n"
        f"moves    {moved.name!r}{far}: {moved.why}\n"
        f"op       {op}\n"
        f"program  {given.out}: {count(needed, 'op')} of {of}\n\n"
        f"{seen.program}\n"
        f"again    {command}"
    )


def _line(value: RunValue) -> str:
    return f"{value.op}  {value.source}".rstrip()
