"""The command `fluid`: arguments, help that teaches, and what becomes of errors.

A command is a function of its arguments that gives an exit code. What users can get wrong ends as
one message and the code 2; Ctrl-C as one line and the code 130. Anything else is a fault of ours
and keeps its traceback.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import CompileError
from compiler.options import Options
from fleet.launch.agent import run_job
from fleet.launch.arguments import DESCRIPTION as LAUNCH
from fleet.launch.arguments import EXAMPLES as LAUNCH_EXAMPLES
from fleet.launch.arguments import add_arguments, job_of
from fleet.launch.server_arguments import DESCRIPTION as LAUNCH_PS
from fleet.launch.server_arguments import EXAMPLES as LAUNCH_PS_EXAMPLES
from fleet.launch.server_arguments import add_server_arguments, server_job
from fleet.launch.servers import run_server_job
from fluid.cli.bisect import add_bisect
from fluid.cli.compile import add_compile
from fluid.cli.convert import add_convert
from fluid.cli.differences import add_compare
from fluid.cli.infer_arguments import add_infer
from fluid.cli.inspect import add_inspect
from fluid.cli.limits import OutOfTime
from fluid.cli.model import CommandError
from fluid.cli.ps import add_ps
from fluid.cli.run import INTERRUPTED, prepare, run_script
from fluid.cli.terminal import escaped_output
from fluid.cli.weights import add_weights
from fluid.demo.story import EPOCHS, SEED, demo
from runtime.files.checkpoint import CheckpointError

DISTRIBUTION = "fluid-compiler"
USAGE_ERROR, OUT_OF_TIME, PIPE_CLOSED = 2, 124, 141

EXAMPLES = """\
start here:
  fluid demo                        learn handwritten digits, a few seconds
  fluid inspect out/demo/model      what is in the model it saved
  fluid infer out/demo/model --input out/demo/digits.npy
  fluid run train.py                a script of your own that imports paddle 1.x
  fluid launch --nproc_per_node 2 train.py      the same in two processes
  fluid launch_ps --worker_num 2 --server_num 2 train.py     with parameter servers

'fluid COMMAND --help' says more about each.

environment:
  FLUID_TRACEBACK=full              show all frames in tracebacks, not only the script's own
"""

DEMO = """\
Train a small convolutional network with batch normalisation on 1,500 real handwritten digits, test
it on 297 others, save it, load it, and compile it for inference with and without folding its batch
norms. Every stage is shown, with what each pass did and what memory it takes.
"""
DEMO_EXAMPLES = """\
examples:
  fluid demo
  fluid demo --epochs 2 --out /tmp/demo     faster, and into another folder
  fluid demo --seed 7                       other initial weights and another order of the digits
"""

RUN = """\
Run a script written for paddle 1.x as it is: `import paddle`, `paddle.fluid` and what is below them
come from this package. Data sets are read from ~/.cache/paddle/dataset, or the folder that the
environment variable PADDLE_DATASET_HOME names; nothing is downloaded.
"""
RUN_EXAMPLES = """\
examples:
  fluid run train.py
  fluid run train.py --use_cuda 0 --epochs 5          what follows the script is its own
  fluid run --cpu train.py --use_gpu true             on the processor, though it asks for a GPU
  fluid run --trace trace.json train.py               see it in ui.perfetto.dev
  fluid run --force train.py                          even where another paddle is installed
  fluid run -m paddle.distributed.launch train.py     a module below paddle, or of your own
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; its exit code."""
    with escaped_output():
        given = parser().parse_args(arguments)
        code = _answer(given)
    if code == 0 and given.name == "run":
        return run_script(given.script, given.trace, given.module)
    return code


def _answer(given: argparse.Namespace) -> int:
    """Do what a command says, or tell what is wrong with it; its exit code."""
    try:
        _expect_settings()
        code = given.command(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OutOfTime as error:
        print(f"fluid {given.name}: {error}", file=sys.stderr)
        return OUT_OF_TIME
    except KeyboardInterrupt:
        print(f"\nfluid {given.name}: stopped; nothing was left half-written", file=sys.stderr)
        return INTERRUPTED
    except (CommandError, CompileError, CheckpointError, OSError) as error:
        print(f"fluid {given.name}: {_message(error)}", file=sys.stderr)
        return USAGE_ERROR


def parser() -> argparse.ArgumentParser:
    """The arguments of every command."""
    top = _Parser(
        prog="fluid",
        description="Programs and models of Paddle 1.x fluid: compiled, explained and run.",
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="name")
    top.set_defaults(command=partial(_teach, top))
    _add_demo(commands)
    add_inspect(commands)
    add_infer(commands)
    _add_run(commands)
    _add_launch(commands)
    _add_launch_ps(commands)
    add_ps(commands)
    add_bisect(commands)
    add_compare(commands)
    add_convert(commands)
    add_compile(commands)
    add_weights(commands)
    return top


def _teach(top: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """What `fluid` alone does."""
    top.print_help(sys.stderr)
    return USAGE_ERROR


class _Parser(argparse.ArgumentParser):
    """A parser that leaves the lines of its texts as they are."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**settings)


def _add_demo(commands: Any) -> None:
    command = commands.add_parser(
        "demo",
        help="learn handwritten digits through every stage of the compiler",
        description=DEMO,
        epilog=DEMO_EXAMPLES,
    )
    command.set_defaults(command=demo)
    positive, natural = partial(_whole, least=1), partial(_whole, least=0)
    command.add_argument(
        "--epochs", type=positive, default=EPOCHS, metavar="N",
        help="how often to see every digit (%(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--out", type=Path, default=Path("out/demo"), metavar="DIR",
        help="where to write (%(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--seed", type=natural, default=SEED, metavar="S",
        help="the same seed, the same numbers (%(default)s)",
    )  # fmt: skip


def _add_run(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="run a script written for paddle 1.x",
        description=RUN,
        epilog=RUN_EXAMPLES,
    )
    command.set_defaults(command=prepare)
    command.add_argument(
        "--force", action="store_true", help="take the place of another paddle in this process"
    )
    command.add_argument(
        "--cpu", action="store_true", help="CUDAPlace is CPUPlace: for scripts that want a GPU"
    )
    command.add_argument(
        "--trace", type=_file, metavar="FILE", help="write a Chrome trace: passes, steps, bytes"
    )
    command.add_argument(
        "-m", "--module", action="store_true", help="SCRIPT is a module's name, as python -m has it"
    )
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="what the script is given"
    )


def _add_launch(commands: Any) -> None:
    command = commands.add_parser(
        "launch",
        help="run a script in several processes, on one machine or many",
        description=LAUNCH,
        epilog=LAUNCH_EXAMPLES,
    )
    command.set_defaults(command=_launch)
    add_arguments(command)


def _launch(given: argparse.Namespace) -> int:
    """Run a script in several processes; the exit code of the first that failed, or 0."""
    try:
        job = job_of(given, os.environ)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return run_job(job)


def _add_launch_ps(commands: Any) -> None:
    command = commands.add_parser(
        "launch_ps",
        help="run a script as parameter servers and workers",
        description=LAUNCH_PS,
        epilog=LAUNCH_PS_EXAMPLES,
    )
    command.set_defaults(command=_launch_ps)
    add_server_arguments(command)


def _launch_ps(given: argparse.Namespace) -> int:
    """Run a script as servers and workers; the exit code of the first that failed, or 0."""
    try:
        job = server_job(given)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return run_server_job(job)


def _file(text: str) -> Path:
    """A path that stays the same where a script changes the folder."""
    return Path(text).resolve()


def _whole(text: str, least: int) -> int:
    """A whole number that fits a seed."""
    if not text.isdecimal() or not least <= int(text) < 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return int(text)


def _expect_settings() -> None:
    """CommandError for an environment variable of ours that makes no sense."""
    try:
        Options.from_env()
    except ValueError as error:
        raise CommandError(str(error)) from error


def _version() -> str:
    try:
        number = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        number = "(not installed)"
    return f"{DISTRIBUTION} {number}, Python {platform.python_version()}, NumPy {np.__version__}"


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return "\n".join([str(error), *getattr(error, "__notes__", ())])
