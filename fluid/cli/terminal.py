"""Terminal output of commands, with text from models and users escaped.

Everything a command prints goes through `Shown`, which escapes control characters and characters
that are invisible or change the direction of text. Progress lines, which move the cursor, go
through `progress_line`.
"""

from __future__ import annotations

import io
import os
import select
import sys
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import BinaryIO, TextIO, cast

from compiler.support.escape import one_line, printable_lines
from compiler.support.settings.systems import TERM

__all__ = [
    "CLEAR",
    "PIPE_CLOSED",
    "Shown",
    "clears_lines",
    "drop_unwritten_output",
    "escaped_output",
    "fitting",
    "one_line_warnings",
    "output_is_closed",
    "progress_line",
    "unbuffer_output",
]

PIPE_CLOSED = 141
"""Exit code of a command whose output nobody reads any more, as in shells."""

COLUMNS = 80
"""Columns of a terminal that does not tell how many it has."""

CLEAR = "\r\033[K"
"""Escape sequence that clears the current terminal line."""


class Shown:
    """A stream that escapes unprintable characters and forwards to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; returns its number of characters. An OSError says that output failed."""
        try:
            self.stream.write(printable_lines(text))
        except OSError as error:
            error.filename = error.filename or "output"
            raise
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def escaped_output() -> Generator[None]:
    """Escape everything printed within a `with` block, and tracebacks that end the process."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`
            setattr(sys, name, _nowhere())
    _let_any_terminal_print()
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_traceback
    out, err = cast(TextIO, Shown(sys.stdout)), cast(TextIO, Shown(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def one_line_warnings() -> Generator[None]:
    """Print warnings within a `with` block as one line each, without lines of our packages."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        print(f"fluid: warning: {message}", file=file or sys.stderr)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def drop_unwritten_output() -> OSError | None:
    """Drop what was printed but cannot be written, as to a full disk or a reader that has ended.

    Returns the error, or None if all is written. Python would try again when the process ends.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _print_nowhere()
        return error
    return None


def output_is_closed() -> bool:
    """Whether stdout is a pipe that nobody reads any more; what is printed is dropped then."""
    if isinstance(drop_unwritten_output(), BrokenPipeError):
        return True
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are reported without being asked for
    if closed := any(event & select.POLLERR for _, event in poll.poll(0)):
        _print_nowhere()
    return closed


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
    """Replace the current progress line, if stderr is a terminal that can clear it."""
    stream = sys.stderr
    bare = stream.stream if isinstance(stream, Shown) else stream
    if clears_lines(bare):
        print(f"{CLEAR}{fitting(one_line(text), bare)}", end="", file=bare, flush=True)


def clears_lines(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose current line can be cleared."""
    return stream.isatty() and TERM.text() != "dumb"


def fitting(text: str, stream: TextIO) -> str:
    """A line, cut to the columns of a terminal: of one that is wrapped only a part is cleared.

    >>> fitting("epoch 1", io.StringIO())
    'epoch 1'
    """
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        columns = COLUMNS
    return text if len(text) < columns else f"{text[: max(columns - 2, 0)]}…"


def _print_nowhere() -> None:
    """Drop what is printed from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _nowhere() -> TextIO:
    """A stream that is open until the process ends, and drops what is written to it."""
    return io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w"), "utf-8")


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
