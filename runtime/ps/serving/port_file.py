"""The file with the port of a server, `/tmp/paddle.PID.port`, which scripts wait for and read.

Source: `SavePort` of `listen_and_serv_op.cc`, release 1.8.5.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["port_file", "port_path"]


def port_path(process: int) -> Path:
    """The path of the file of a process; `/tmp`, whatever TMPDIR is, where there is one."""
    folder = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    return folder / f"paddle.{process}.port"


@contextmanager
def port_file(port: int) -> Generator[None]:
    """Write the port of this process's server for as long as it serves.

    The file appears with its text. Without a writable folder there is none.
    """
    path = port_path(os.getpid())
    with suppress(OSError):
        _write(path, f"{port}\n")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def _write(path: Path, text: str) -> None:
    number, draft = tempfile.mkstemp(dir=path.parent, prefix="paddle.")
    with os.fdopen(number, "w") as file:
        file.write(text)
    Path(draft).chmod(0o644)
    Path(draft).replace(path)
