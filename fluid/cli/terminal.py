"""What commands print: text of models and users shown as it is, and steering nothing.

Everything printed while a command runs passes `Shown`, which escapes control characters and
characters that are invisible or turn the direction of text. Lines that a command itself moves the
cursor for, about what takes a while, go through `progress_line`.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import Any, TextIO

from compiler.escape import one_line, printable_lines

__all__ = ["Shown", "escaped_output", "progress_line"]

CLEAR = "\r\033[K"
"""What takes a line back on a terminal."""


class Shown:
    """A stream that writes text to another one, with all that is not printable escaped."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; the number of its characters."""
        self.stream.write(printable_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is printed in a `with` block; and the tracebacks of what ends the process."""
    _let_any_terminal_print()
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_traceback
    with redirect_stdout(Shown(sys.stdout)), redirect_stderr(Shown(sys.stderr)):
        yield


def progress_line(text: str) -> None:
    """Write a line over the one before it, where errors go to a terminal."""
    stream: Any = sys.stderr
    if stream.isatty():
        bare = stream.stream if isinstance(stream, Shown) else stream
        print(f"{CLEAR}{one_line(text)}", end="", file=bare, flush=True)


def _show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of a fault of ours, whose message may hold names of a model."""
    lines = traceback.format_exception(kind, error, trace)
    print(printable_lines("".join(lines)), end="", file=sys.stderr)


def _let_any_terminal_print() -> None:
    """Print a ? for a character that a terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
