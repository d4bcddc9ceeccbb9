"""Files of samples as lines: local ones, compressed ones and those of a remote file system."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO

from compiler.support.dataclass import dataclass
from compiler.support.escape import printable_lines

__all__ = ["LineSource"]

REMOTE = ("hdfs:", "afs:")
"""Prefixes of paths that a command reads."""
_PIPE_CLOSED = (-13, 128 + 13)
"""Exit statuses of a command that printed more than its reader took (SIGPIPE)."""

STDERR = 2
LAST_LINES, LAST_BYTES = 8, 8192
"""What an error shows of a command's stderr."""
SECONDS_TO_READ = 1
"""How long to wait for the stderr of a command that has ended; another process may keep it open."""
NO_PADDLE = "No module named 'paddle"
NO_PADDLE_HINT = """
hint: under `fluid run`, `python` and the interpreter that runs it import paddle in commands too"""


@dataclass
class LineSource:
    """How files are read: by a download command or Hadoop, then through a pipe command.

    Source: `fs.cc` of release 1.8.5.
    """

    pipe_command: str = "cat"
    download_cmd: str = ""
    fs_name: str = ""
    fs_ugi: str = ""

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines that the pipe command prints for a file.

        Raises FileNotFoundError, and RuntimeError if a command fails.
        """
        with self._opened(path) as source, _output(self.pipe_command, path, source) as printed:
            yield from printed

    @contextmanager
    def _opened(self, path: str) -> Generator[IO[bytes]]:
        command = self._read_command(path)
        if not command:
            with Path(path).open("rb") as file:
                yield file
            return
        with _output(command, path) as printed:
            yield printed

    def _read_command(self, path: str) -> str:
        """The shell command that prints a file; empty for files that are opened."""
        quoted, is_compressed = shlex.quote(path), path.endswith(".gz")
        if not path.startswith(REMOTE):
            return f"zcat {quoted}" if is_compressed else ""
        if is_compressed:
            return f"{self._hadoop()} -text {quoted}"
        return f"{self.download_cmd or f'{self._hadoop()} -cat'} {quoted}"

    def _hadoop(self) -> str:
        if not self.fs_name:
            return "hadoop fs"
        name, ugi = shlex.quote(self.fs_name), shlex.quote(self.fs_ugi)
        return f"$HADOOP_HOME/bin/hadoop fs -D fs.default.name={name} -D hadoop.job.ugi={ugi}"


@contextmanager
def _output(command: str, path: str, source: IO[bytes] | None = None) -> Generator[IO[bytes]]:
    """The output of a shell command; RuntimeError if it fails although it was read to its end."""
    shown = subprocess.Popen(
        command, shell=True, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert shown.stdout is not None and shown.stderr is not None
    errors = _Errors(shown.stderr)
    errors.start()
    try:
        yield shown.stdout
        shown.stdout.close()
        if shown.wait() not in (0, *_PIPE_CLOSED):
            raise RuntimeError(
                f"`{command}` ended with {shown.returncode} on {path}{errors.text()}"
            )
    finally:
        shown.stdout.close()
        shown.kill()
        shown.wait()


class _Errors(Thread):
    """Copies what a command writes to its stderr, and keeps the end of it for an error."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(name="stderr of a pipe command", daemon=True)
        self._stream = stream
        self._last = b""

    def run(self) -> None:
        """Copy until the command, and what it started, has closed its stderr."""
        with self._stream:
            while chunk := os.read(self._stream.fileno(), LAST_BYTES):
                self._last = (self._last + chunk)[-LAST_BYTES:]
                with suppress(OSError):  # this process may have no stderr
                    os.write(STDERR, chunk)

    def text(self) -> str:
        """The last lines as the end of a message; empty if there are none."""
        self.join(SECONDS_TO_READ)
        lines = [line for line in self._last.decode(errors="replace").splitlines() if line]
        shown = "".join(f"\n  {printable_lines(line)}" for line in lines[-LAST_LINES:])
        return f":{shown}{NO_PADDLE_HINT * (NO_PADDLE in shown)}" if lines else ""
