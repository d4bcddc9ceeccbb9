"""The arguments and help text of `fluid profile`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from fluid.cli.inspect import positive, size
from fluid.cli.model import CommandError, add_file_names
from fluid.cli.profiling.model import profile_model
from fluid.cli.run import prepare
from fluid.cli.subcommands import Subcommands
from fluid.cli.target import add_target

PROFILE = """\
Show the time of each op, with the rates that its machine code reaches.

A script (.py) runs unchanged, as by `fluid run`; when it ends, by Ctrl-C too, a table shows the
time that each op took in all of its steps. A saved model runs on random inputs, and its times are
compared with what this CPU reaches: the roofline.
"""
PROFILE_EXAMPLES = """\
examples:
  fluid profile train.py --epochs 1                   arguments after the script go to the script
  fluid profile -m package.train --epochs 1           the same for a module, as with python -m
  fluid profile out/demo/model --batch 64
  fluid profile out/demo/model --chart roofline.svg --html report.html     kernels, IR, assembly
"""


def add_profile(commands: Subcommands) -> None:
    """Add `profile` to the subcommands."""
    command = commands.add_parser(
        "profile",
        help="show the time of each op of a script or a saved model",
        description=PROFILE,
        epilog=PROFILE_EXAMPLES,
    )
    command.set_defaults(command=partial(_profile, command))
    _add_script(command)
    _add_model(command)
    command.add_argument(
        "path", type=Path, metavar="PATH", help="a Python file, a module, or a saved model's folder"
    )
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    )


def _add_script(command: argparse.ArgumentParser) -> None:
    scripts = command.add_argument_group("scripts")
    scripts.add_argument(
        "--cpu", action="store_true", help="run on the CPU: CUDAPlace becomes CPUPlace"
    )
    scripts.add_argument(
        "--force", action="store_true", help="use this package even if another paddle is installed"
    )
    scripts.add_argument(
        "-m", "--module", action="store_true", help="PATH is a module name, as with python -m"
    )
    add_target(scripts.add_argument)


def _add_model(command: argparse.ArgumentParser) -> None:
    models = command.add_argument_group("models")
    add = models.add_argument
    add("--batch", type=positive, metavar="N", help="batch size, the same as --size N=NUMBER")
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help="value of a dynamic dim")  # fmt: skip
    add("--chart", type=Path, metavar="FILE", help="write the roofline as an SVG file")
    add("--html", type=Path, metavar="FILE", help="write a report with IR and assembly of kernels")
    add_file_names(add)


def _profile(command: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """Profile a model, or prepare to run a script, which the caller does.

    What follows a script is for the script; what follows a model are options of the command.
    """
    given.script = given.path if given.module or given.path.suffix == ".py" else None
    if given.script:
        return prepare(given)
    command.parse_args([*given.arguments, str(given.path)], given)
    if given.arguments:
        raise CommandError(f"one model is expected, not also {' '.join(given.arguments)}")
    return profile_model(given)
