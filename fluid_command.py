"""The installed command `fluid`: Ctrl-C ends it quietly, also while its packages are imported."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C, as in shells."""


def main() -> int:
    """Run the command line of this process; returns its exit code.

    While modules are imported Ctrl-C ends the process at once, without a traceback: nothing has
    been written by then, and NumPy turns the exception into errors of its own.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # ignored in processes that a shell starts with &
        signal.signal(signal.SIGINT, _end)
    command = import_module("fluid.cli.main").main
    signal.signal(signal.SIGINT, before)
    return command()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)
