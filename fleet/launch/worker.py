"""One process of a launched job: its environment is completed, then its script runs.

Run by torch's agent as `python -m fleet.launch.worker --parent PID -- SCRIPT ARGUMENTS`, with the
PID of the launcher: the process ends with it, also if it is gone before this one can ask for it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from fleet.launch.adopt import adopt
from fluid.cli.model import CommandError
from fluid.cli.run import prepare, run_script
from runtime.parent_process import end_with


def main() -> int:
    """Run the script of the command line in this process; return 0, or 2 for an invalid command
    line.
    """
    options = _arguments()
    end_with(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the script runs, there is nothing to save
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())  # one log, in order
    faulthandler.enable()  # the log of a process that a signal ends says where its threads were
    try:
        return _run(options)
    except Exception as error:  # torch, whose import takes a second, is loaded only to record it
        record = import_module("torch.distributed.elastic.multiprocessing.errors").record
        record(_raise)(error)
        raise


def _raise(error: Exception) -> NoReturn:
    raise error


def _run(given: argparse.Namespace) -> int:
    """Complete the environment and run the script."""
    try:
        adopt(given.gpus, given.started_port)
        prepare(given)
    except (CommandError, ValueError, OSError) as error:
        print(f"fluid launch: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_script(given.script)


def _arguments() -> argparse.Namespace:
    command = argparse.ArgumentParser("fleet.launch.worker")
    command.add_argument("--parent", type=int, required=True)
    command.add_argument("--gpus", default="")
    command.add_argument("--started-port", type=int)
    command.add_argument("--force", action="store_true")
    command.add_argument("--cpu", action="store_true")
    command.set_defaults(module=False, target=None)
    command.add_argument("script", type=Path)
    command.add_argument("arguments", nargs=argparse.REMAINDER)
    return command.parse_args()


if __name__ == "__main__":
    sys.exit(main())
