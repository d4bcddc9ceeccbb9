"""Ctrl-C while the command `fluid` is still being imported, before it can handle it.

This is imported before anything else, and imports only what Python has loaded at its start.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["INTERRUPTED", "exit_on_interrupts", "raise_interrupts"]

INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C, as in shells."""


def exit_on_interrupts() -> None:
    """If this process is the command `fluid`, let Ctrl-C end it without a traceback.

    A handler that someone has set remains, as do ignored interrupts.
    """
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, if `exit_on_interrupts` has changed that."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command() -> bool:
    """Whether this is `fluid`, or `python -m fluid`, whose package is imported first."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 (no pathlib yet)
    if name != "-m":
        return name in ("fluid", "fluid.exe")
    words = sys.orig_argv
    return words[words.index("-m") + 1 :][:1] == ["fluid"] if "-m" in words else "-mfluid" in words


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)
