"""Processes that take steps on request: the client of `protocol.py`.

Peers need other Pythons and other thread settings, and a fair comparison needs alternating rounds:
so each waits in a separate process for lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast


class Peer:
    """A running process, and the file of its stderr."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process = process
        self._complaints = complaints

    def ask(self, model: str, mode: str, steps: int) -> float:
        """Milliseconds per step; raises as `reply` does."""
        return self.reply(model, mode, steps)["ms"]

    def reply(self, model: str, mode: str, steps: int, **more: int) -> dict[str, Any]:
        """Its measurements of some steps; RuntimeError with its last output if it died.

        `more` are other items of the request.
        """
        request = {"model": model, "mode": mode, "steps": steps, **more}
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        reply = cast("IO[str]", self._process.stdout).readline()
        if not reply:
            self._complaints.seek(0)
            raise RuntimeError(f"a peer died:\n{self._complaints.read()[-2000:]}")
        return json.loads(reply)


@contextlib.contextmanager
def started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Peer]:
    """A process that serves until the `with` block ends."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as complaints,
        subprocess.Popen(
            command, env={**os.environ, **environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
        ) as process,
    ):  # fmt: skip
        yield Peer(process, complaints)
