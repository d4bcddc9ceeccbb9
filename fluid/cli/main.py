"""The command `fluid`: argument parser, help texts and error handling.

A command is a function from parsed arguments to an exit code. A user error prints one message and
exits with 2; Ctrl-C prints one line and exits with 130. Anything else is a bug of ours and keeps
its traceback.
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
from fluid.cli.target import add_target
from fluid.cli.terminal import escaped_output
from fluid.cli.weights import add_weights
from fluid.demo.story import EPOCHS, SEED, demo
from runtime.files.checkpoint import CheckpointError

DISTRIBUTION = "fluid-compiler"
USAGE_ERROR, OUT_OF_TIME, PIPE_CLOSED = 2, 124, 141

EXAMPLES = """\
start here:
  fluid demo                        train a digit classifier, a few seconds
  fluid inspect out/demo/model      show the model it saved
  fluid infer out/demo/model --input out/demo/digits.npy
  fluid run train.py                run your own script that imports paddle 1.x
  fluid launch --nproc_per_node 2 train.py      the same in two processes
  fluid launch_ps --worker_num 2 --server_num 2 train.py     with parameter servers

'fluid COMMAND --help' describes each command.

environment variables:
  FLUID_TARGET=native               run on the CPU as machine code instead of NumPy calls
  FLUID_TRACEBACK=full              show all frames in tracebacks, not only those of the script
"""

DEMO = """\
Train a small convolutional network with batch normalisation on 1,500 images of handwritten digits,
test it on 297 others, save it, load it, and compile it for inference with and without folding its
batch norms. The output shows every stage of the compiler: the effect of each pass and the memory.
"""
DEMO_EXAMPLES = """\
examples:
  fluid demo
  fluid demo --epochs 2 --out /tmp/demo     faster, and into another folder
  fluid demo --seed 7                       other initial weights and another order of the images
"""

RUN = """\
Run a script written for paddle 1.x unchanged: `import paddle`, `paddle.fluid` and their submodules
are provided by this package. Data sets are read from ~/.cache/paddle/dataset, or from the folder in
the environment variable PADDLE_DATASET_HOME; nothing is downloaded.
"""
RUN_EXAMPLES = """\
examples:
  fluid run train.py
  fluid run train.py --use_cuda 0 --epochs 5          arguments after the script go to the script
  fluid run --cpu train.py --use_gpu true             run on the CPU, although it asks for a GPU
  fluid run --target native train.py                  machine code for this CPU instead of NumPy
  fluid run --trace trace.json train.py               open it in ui.perfetto.dev
  fluid run --force train.py                          even if another paddle is installed
  fluid run -m paddle.distributed.launch train.py     run a module, of paddle or your own
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    with escaped_output():
        given = parser().parse_args(arguments)
        code = _answer(given)
    if code == 0 and given.name == "run":
        return run_script(given.script, given.trace, given.module)
    return code


def _answer(given: argparse.Namespace) -> int:
    """Run a command and print its error, if any; returns the exit code."""
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
    """The argument parser of all commands."""
    top = _Parser(
        prog="fluid",
        description="Compile, inspect and run programs and models of Paddle 1.x fluid.",
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
    """Print the help: what `fluid` without a command does."""
    top.print_help(sys.stderr)
    return USAGE_ERROR


class _Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its texts."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**settings)


def _add_demo(commands: Any) -> None:
    command = commands.add_parser(
        "demo",
        help="train a digit classifier and show every stage of the compiler",
        description=DEMO,
        epilog=DEMO_EXAMPLES,
    )
    command.set_defaults(command=demo)
    positive, natural = partial(_whole, least=1), partial(_whole, least=0)
    command.add_argument(
        "--epochs", type=positive, default=EPOCHS, metavar="N",
        help="number of training epochs (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--out", type=Path, default=Path("out/demo"), metavar="DIR",
        help="output folder (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--seed", type=natural, default=SEED, metavar="S",
        help="random seed (default: %(default)s)",
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
        "--force", action="store_true", help="use this package even if another paddle is installed"
    )
    command.add_argument(
        "--cpu", action="store_true", help="run on the CPU: CUDAPlace becomes CPUPlace"
    )
    command.add_argument(
        "--trace", type=_file, metavar="FILE", help="write a Chrome trace: passes, steps, bytes"
    )
    add_target(command)
    command.add_argument(
        "-m", "--module", action="store_true", help="SCRIPT is a module name, as with python -m"
    )
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
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
    """Run a script in several processes; returns the exit code of the first that failed, or 0."""
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
    """Run a script as servers and workers; returns the exit code of the first that failed, or 0."""
    try:
        job = server_job(given)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return run_server_job(job)


def _file(text: str) -> Path:
    """An absolute path, so that a script may change the working directory."""
    return Path(text).resolve()


def _whole(text: str, least: int) -> int:
    """Parse an integer from `least` to 2^31 - 2, the range of a seed."""
    if not text.isdecimal() or not least <= int(text) < 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return int(text)


def _expect_settings() -> None:
    """Raise CommandError for an invalid `FLUID_` environment variable."""
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
