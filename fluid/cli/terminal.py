"""Terminal output of commands, with text from models and users escaped.

Everything a command prints goes through `Shown`, which escapes control characters and characters
that are invisible or change the direction of text. Progress lines, which move the cursor, go
through `progress_line`.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import BinaryIO, TextIO, cast

from compiler.support.escape import one_line, printable_lines

__all__ = ["INTERRUPTED", "Shown", "escaped_output", "progress_line", "unbuffer_output"]

INTERRUPTED = 130
"""Exit code of a command that was stopped with Ctrl-C, as in shells."""

CLEAR = "\r\033[K"
"""Escape sequence that clears the current terminal line."""


class Shown:
    """A stream that escapes unprintable characters and forwards to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; returns its number of characters."""
        self.stream.write(printable_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def escaped_output() -> Generator[None]:
    """Escape everything printed within a `with` block, and tracebacks that end the process."""
    _let_any_terminal_print()
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_traceback
    out, err = cast(TextIO, Shown(sys.stdout)), cast(TextIO, Shown(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def unbuffer_output() -> None:
    """Write at once what this process prints, as `python -u` does."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            encoding, errors = stream.encoding, stream.errors
            binary = cast(BinaryIO, stream.detach())
            raw = (
                cast(BinaryIO, binary.detach()) if isinstance(binary, io.BufferedWriter) else binary
            )
            text = io.TextIOWrapper(raw, encoding, errors, write_through=True)
            setattr(sys, name, text)
            setattr(sys, f"__{name}__", text)


def progress_line(text: str) -> None:
    """Replace the current progress line, if stderr is a terminal."""
    stream = sys.stderr
    if stream.isatty():
        bare = stream.stream if isinstance(stream, Shown) else stream
        print(f"{CLEAR}{one_line(text)}", end="", file=bare, flush=True)


def _show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the escaped traceback of an internal error, whose message may contain
    names of a model.
    """
    lines = traceback.format_exception(kind, error, trace)
    print(printable_lines("".join(lines)), end="", file=sys.stderr)


def _let_any_terminal_print() -> None:
    """Print ? for characters that the terminal's encoding lacks instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
