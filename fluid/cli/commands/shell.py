"""`fluid shell`: run any command so that the Python processes it starts can import paddle."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from compiler.support.settings.setting import export
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands
from fluid.cli.target import add_script_options, use_target
from fluid.compat.as_paddle import expect_no_other_paddle
from fluid.compat.startup.variables import child_variables

__all__ = ["add_shell"]

SHELL = """\
Run a command, such as a script of shell, so that every Python process it starts can `import paddle`
of release 1.x, as under `fluid run`: `python train.py`, `python -m paddle.distributed.launch`, pipe
commands of datasets, and what these start in turn. In it, `python` and `python3` are the
interpreter that runs fluid. Other interpreters, called by their paths, run as without fluid.
"""
SHELL_EXAMPLES = """\
examples:
  fluid shell -- bash train.sh                        a script of shell with its lines as they are
  fluid shell -- bash -c 'python prepare.py | python train.py'
  fluid shell --cpu -- bash train.sh                  CUDAPlace becomes CPUPlace in all scripts
  fluid shell -- python -m paddle.distributed.launch --selected_gpus 0,1 train.py
  fluid shell -- bash                                 an interactive shell, until `exit`

A script of shell such as

  python -u prepare.py < raw.txt > data/part-0
  python -m paddle.distributed.launch_ps --worker_num 2 --server_num 2 train.py
  for seed in 1 2 3; do python infer.py --seed $seed; done

needs no change. The exit code is that of the command.
"""


def add_shell(commands: Subcommands) -> None:
    """Add `shell` to the subcommands."""
    command = commands.add_parser(
        "shell",
        help="run a command that starts scripts written for paddle 1.x",
        description=SHELL,
        epilog=SHELL_EXAMPLES,
    )
    command.set_defaults(command=_shell)
    add_script_options(command)
    command.add_argument(
        "line", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="a command, its arguments"
    )


def _shell(given: argparse.Namespace) -> int:
    """Run the command in place of this process; returns its exit code where that is impossible."""
    line: list[str] = given.line[1:] if given.line[:1] == ["--"] else given.line
    if not line:
        raise CommandError("expected a command, such as: fluid shell -- bash train.sh")
    try:
        if not given.force:
            expect_no_other_paddle()
        use_target(given.target)
        export(child_variables(given.cpu, given.force))
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error
    program = shutil.which(line[0])
    if program is None:
        raise CommandError(f"there is no command {line[0]!r}")
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(program, line)
    return subprocess.call([program, *line[1:]])
