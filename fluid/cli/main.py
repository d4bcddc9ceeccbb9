"""The command `fluid`: argument parser, help texts and error handling.

A command is a function from parsed arguments to an exit code. A user error prints one message and
exits with 2; Ctrl-C prints one line and exits with 130. Anything else is a bug of ours and keeps
its traceback.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

import numpy as np

from compiler.errors import CompileError
from compiler.options import Options
from compiler.support.lazy_loading import load
from compiler.support.settings import fluid as settings
from compiler.support.settings.setting import Setting
from fluid.cli.commands.argument_parser import ArgumentParser
from fluid.cli.commands.interrupts import INTERRUPTED, raise_interrupts
from fluid.cli.limits import OutOfTime
from fluid.cli.model import CommandError
from fluid.cli.terminal import (
    PIPE_CLOSED,
    drop_unwritten_output,
    escaped_output,
    one_line_warnings,
    unbuffer_output,
)
from runtime.files.checkpoint import CheckpointError

DISTRIBUTION = "fluid-compiler"
USAGE_ERROR, OUT_OF_TIME = 2, 124

EXAMPLES = """\
start here:
  fluid demo                        train a digit classifier, a few seconds
  fluid inspect out/demo/model      show the model it saved
  fluid infer out/demo/model --input out/demo/digits.npy
  fluid run train.py                run your own script that imports paddle 1.x
  fluid shell -- bash train.sh      run a command that starts such scripts
  fluid profile train.py            run it, and show the time of each op
  fluid doctor                      what this machine has, and what is missing
  fluid selftest                    compare native kernels with the reference, two minutes
  fluid launch --nproc_per_node 2 train.py      the same in two processes
  fluid launch_ps --worker_num 2 --server_num 2 train.py     with parameter servers

'fluid COMMAND --help' describes each command.

environment variables:
  FLUID_TARGET=numpy                run on the CPU in NumPy calls instead of machine code
  FLUID_TRACEBACK=full              show all frames in tracebacks, not only those of the script
  docs/settings.md lists all of them
"""

COMMANDS = {
    "demo": ("fluid.cli.commands.demo", "add_demo"),
    "inspect": ("fluid.cli.inspect", "add_inspect"),
    "infer": ("fluid.cli.commands.infer", "add_infer"),
    "run": ("fluid.cli.commands.run", "add_run"),
    "shell": ("fluid.cli.commands.shell", "add_shell"),
    "profile": ("fluid.cli.commands.profile", "add_profile"),
    "doctor": ("fluid.cli.commands.doctor", "add_doctor"),
    "selftest": ("fluid.cli.commands.selftest", "add_selftest"),
    "launch": ("fluid.cli.commands.launch", "add_launch"),
    "launch_ps": ("fluid.cli.commands.launch", "add_launch_ps"),
    "ps": ("fluid.cli.ps", "add_ps"),
    "bisect": ("fluid.cli.bisect", "add_bisect"),
    "compare": ("fluid.cli.differences", "add_compare"),
    "convert": ("fluid.cli.convert", "add_convert"),
    "compile": ("fluid.cli.compile", "add_compile"),
    "export": ("fluid.cli.export", "add_export"),
    "weights": ("fluid.cli.weights", "add_weights"),
    "cache": ("fluid.cli.commands.doctor", "add_cache"),
}
"""The commands in the order of the help: the module of each, and its function that adds it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    with escaped_output(), one_line_warnings():
        words = sys.argv[1:] if arguments is None else arguments
        try:
            raise_interrupts()
            options = _parsed(words)
            if arguments is None:
                gc.freeze()  # a process of its own: collections need not look at its modules
            code = _answer(options)
        except KeyboardInterrupt:
            return _stopped(words[0] if words else "")
    if code == 0 and options.name == "run":
        run = load(partial(import_module, "fluid.cli.run"))
        if options.unbuffered:
            unbuffer_output()
        return int(run.run_script(options.script, options.trace, options.module))
    if code == 0 and options.name == "profile" and options.script:
        scripts = load(partial(import_module, "fluid.cli.profiling.script"))
        return int(scripts.profile_script(options.script, options.module))
    return code


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse words; exits after `--help`, `--version` and mistakes, with an error if what these
    print cannot be written.
    """
    first = words[0] if words else ""
    try:
        return parser(first if first in COMMANDS else "").parse_args(words)
    except (SystemExit, OSError) as end:
        unwritten = drop_unwritten_output()
        unwritten = end if isinstance(end, OSError) else unwritten
        if unwritten is None:
            raise
        if isinstance(unwritten, BrokenPipeError):
            sys.exit(PIPE_CLOSED)
        print(f"fluid: cannot print: {unwritten.strerror}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _stopped(name: str) -> int:
    command = f"fluid {name}" if name in COMMANDS else "fluid"
    print(f"\n{command}: stopped; nothing was left half-written", file=sys.stderr)
    return INTERRUPTED


def _answer(given: argparse.Namespace) -> int:
    """Run a command and print its error, if any; returns the exit code."""
    try:
        _expect_settings()
        code = given.command(given)
        _print_rest()
        return code
    except BrokenPipeError:
        drop_unwritten_output()
        return PIPE_CLOSED
    except OutOfTime as error:
        print(f"fluid {given.name}: {error}", file=sys.stderr)
        return OUT_OF_TIME
    except (CommandError, CompileError, CheckpointError, OSError) as error:
        drop_unwritten_output()
        print(f"fluid {given.name}: {_message(error)}", file=sys.stderr)
        return USAGE_ERROR


def _print_rest() -> None:
    """Write what was printed; raises BrokenPipeError, and CommandError for another OSError."""
    unwritten = drop_unwritten_output()
    if isinstance(unwritten, BrokenPipeError):
        raise unwritten
    if unwritten is not None:
        raise CommandError(f"cannot print: {unwritten.strerror}")


def parser(only: str = "") -> ArgumentParser:
    """The argument parser of all commands, or of one alone: what others import takes a moment."""
    top = ArgumentParser(
        prog="fluid",
        description="Compile, inspect and run programs and models of Paddle 1.x fluid.",
        epilog=EXAMPLES,
    )
    top.add_argument(
        "--version", action=_Version, nargs=0, help="show program's version number and exit"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="name")
    top.set_defaults(command=partial(_teach, top))
    for name, (home, add) in COMMANDS.items():
        if only in ("", name):
            getattr(load(partial(import_module, home)), add)(commands)
    return top


def _teach(top: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """Print the help: what `fluid` without a command does."""
    top.print_help(sys.stderr)
    return USAGE_ERROR


class _Version(argparse.Action):
    """Prints the versions and exits; they are looked up only then, which takes ten milliseconds."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(_version())
        parser.exit()


def _expect_settings() -> None:
    """Raise CommandError for an invalid `FLUID_` environment variable."""
    try:
        for setting in vars(settings).values():
            if isinstance(setting, Setting):
                setting.read()
        Options.from_env()
    except ValueError as error:
        raise CommandError(str(error)) from error


def _version() -> str:
    metadata = load(partial(import_module, "importlib.metadata"))
    try:
        number = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        number = "(not installed)"
    return f"{DISTRIBUTION} {number}, Python {platform.python_version()}, NumPy {np.__version__}"


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return "\n".join([str(error), *getattr(error, "__notes__", ())])
