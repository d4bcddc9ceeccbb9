"""The arguments and help text of `fluid run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from fluid.cli.run import prepare
from fluid.cli.subcommands import Subcommands
from fluid.cli.target import add_script_options

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
  fluid run -u train.py | tee log.txt                 print each line at once, as python -u
"""


def add_run(commands: Subcommands) -> None:
    """Add `run` to the subcommands."""
    command = commands.add_parser(
        "run",
        help="run a script written for paddle 1.x",
        description=RUN,
        epilog=RUN_EXAMPLES,
    )
    command.set_defaults(command=prepare)
    add_script_options(command)
    command.add_argument(
        "--trace", type=_file, metavar="FILE", help="write a Chrome trace: passes, steps, bytes"
    )
    command.add_argument(
        "-m", "--module", action="store_true", help="SCRIPT is a module name, as with python -m"
    )
    command.add_argument(
        "-u", "--unbuffered", action="store_true",
        help="write what the script prints at once, as with python -u",
    )  # fmt: skip
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    )


def _file(text: str) -> Path:
    """An absolute path, so that a script may change the working directory.

    Raises ArgumentTypeError for a folder, before the script runs.
    """
    path = Path(text).resolve()
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder, expected a file to write")
    return path
