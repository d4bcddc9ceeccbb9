"""Processes forked from one that has imported torch: the client of `workers/forks.py`."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[3]
FORKS = ROOT / "tools" / "verify" / "workers" / "forks.py"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Forks:
    """A fork server; it ends with this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(FORKS), str(theirs.fileno())], env=environment,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def start(self, script: str, spec: Any, environment: Mapping[str, str]) -> Forked:
        """Run `main` of a script of `tools/verify/workers` in a fork, with a specification."""
        out, complaints = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        request = {"script": script, "spec": spec, "environment": dict(environment)}
        reply = self.ask(request, [out.fileno(), complaints.fileno()])
        return Forked(self, reply["pid"], out, complaints)

    def ask(self, request: Any, descriptors: list[int]) -> Any:
        """Send a request and return its reply."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            return json.loads(self._control.recv(1 << 16))

    def close(self) -> None:
        """End the fork server; running forks continue."""
        self._control.close()
        self._process.wait(10)


class Forked:
    """A fork: its PID and output. `code` is its exit code once it ended."""

    def __init__(self, forks: Forks, pid: int, out: IO[bytes], complaints: IO[bytes]) -> None:
        self._forks = forks
        self.pid = pid
        self.code: int | None = None
        self._files = out, complaints
        self._pidfd = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it ended."""
        if self.code is None and select.select([self._pidfd], [], [], max(seconds, 0.0))[0]:
            self.code = self._forks.ask({"wait": self.pid}, [])["code"]
        return self.code is not None

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.code is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def wrote(self) -> tuple[str, str]:
        """Its output so far on stdout and stderr."""
        numbers = [file.fileno() for file in self._files]
        outputs = [os.pread(number, os.fstat(number).st_size, 0) for number in numbers]
        return outputs[0].decode(errors="replace"), outputs[1].decode(errors="replace")

    def end(self) -> None:
        """Kill it if it still runs, and close its output."""
        self.send(signal.SIGKILL)
        self.wait(10.0)
        os.close(self._pidfd)
        for file in self._files:
            file.close()
