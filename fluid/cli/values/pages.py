"""Pages and listings that commands write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a text file; none of it is left if the disk is full, or after Ctrl-C.

    Raises OSError, which names the file.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except BaseException as error:
        was_opened = not isinstance(error, OSError) or error.filename is None
        if was_opened and path.is_file():
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
