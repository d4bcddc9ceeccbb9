"""Files that commands write: all of a text, or none of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["append_line", "write_bytes", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a text file; none of it is left if the disk is full, or after Ctrl-C.

    Raises OSError, which names the file.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file as `write_text` does."""
    try:
        path.write_bytes(data)
    except BaseException as error:
        was_opened = not isinstance(error, OSError) or error.filename is None
        if was_opened and path.is_file():
            with suppress(OSError):
                path.unlink()
        raise _named(error, path) from error


def append_line(path: Path, line: str) -> None:
    """Append a line to a file; if all of it cannot be written, the file ends as it did before.

    Raises OSError, which names the file.
    """
    before = path.stat().st_size
    try:
        with path.open("ab") as file:
            file.write(f"{line}\n".encode())
    except BaseException as error:
        with suppress(OSError):
            os.truncate(path, before)
        raise _named(error, path) from error


def _named(error: BaseException, path: Path) -> BaseException:
    """An error of the system with the name of a file; another one as it is."""
    if not isinstance(error, OSError):
        return error
    return OSError(error.errno, error.strerror, str(path))
