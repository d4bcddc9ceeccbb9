"""The worker processes of a pool, started by a thread that lives as long as they do.

The kernel kills a worker when the *thread* that started it ends (PR_SET_PDEATHSIG), so that cannot
be the caller's, which may be any thread.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from compiler.support.settings.setting import environment
from runtime.errors import CollectiveError
from runtime.parallel.channel import Channel, Message
from runtime.parallel.region import SharedRegion

COMMAND = "import sys; sys.path.append({root!r}); from runtime.parallel.worker import main; main()"
"""The code of a worker: the package may have been found by a path that only the caller has."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Ranks share the cores of a machine: each uses one BLAS thread."""

QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Suppresses warnings about connections that end with their process."""

SettingsText = Callable[[int, int, int], str]
"""Formats the settings of a worker, from its rank and its descriptors of socket and region."""


class WorkerProcess:
    """The caller's side of one worker: its process, its channel, and messages read early."""

    def __init__(self, rank: int, spin: float) -> None:
        _expect_linux()
        self.rank = rank
        self.inbox: deque[Message] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        own, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = Channel(own, SharedRegion.create(), spin)

    @property
    def pid(self) -> int:
        """The PID of its process, 0 before it was started."""
        return 0 if self._process is None else self._process.pid

    def start(self, settings: SettingsText, environment: Mapping[str, str]) -> None:
        """Start the process, with settings for its descriptors of socket and region."""
        theirs, region = self.theirs.fileno(), self.channel.region.descriptor
        root = str(Path(__file__).resolve().parents[2])
        text = settings(self.rank, theirs, region)
        command = [sys.executable, "-P", "-c", COMMAND.format(root=root), text]
        self._process = subprocess.Popen(
            command, env={**environment}, pass_fds=[theirs, region], stdin=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
        self._pidfd = os.pidfd_open(self._process.pid)
        self.theirs.close()

    def has_ended(self) -> bool:
        """Whether the process has exited."""
        return self._pidfd >= 0 and bool(select.select([self._pidfd], [], [], 0)[0])

    def cause(self) -> str:
        """How the process ended, as text for an error."""
        code = 0 if self._process is None else self._process.wait()
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with code {code}"

    def drain(self) -> None:
        """Read and keep the pending messages."""
        while self.channel.waits(0):
            message = self.channel.receive()
            if message is None:
                return
            self.inbox.append(message)

    def kill(self) -> None:
        """Kill the process, even if it is stopped."""
        if self._process is not None:
            self._process.kill()

    def reap(self, limit: float) -> None:
        """Wait for the process to exit, kill it after `limit` seconds, and close its resources."""
        if self._process is not None:
            try:
                self._process.wait(limit)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.close(self._pidfd)
            self._process = None
        self.channel.connection.close()
        self.channel.region.close()


def _expect_linux() -> None:
    """Raise CollectiveError where workers cannot share memory with the caller, or be watched."""
    if not (hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")):
        raise CollectiveError(
            "several devices of one process need Linux, for memory shared with worker processes",
            hint="use one place, or fluid launch",
        )


class Starter:
    """A thread that starts workers, and waits until all have ended."""

    def __init__(self, workers: Sequence[WorkerProcess], settings: SettingsText) -> None:
        self._workers = workers
        self._settings = settings
        self._started = Event()
        self._ended = Event()
        self._errors: list[OSError] = []
        Thread(target=self._run, daemon=True, name="workers").start()

    def wait(self) -> None:
        """Wait until the processes are started. Raises CollectiveError if one cannot be."""
        self._started.wait()
        if self._errors:
            raise CollectiveError(f"a worker cannot be started: {self._errors[0]}")

    def end(self) -> None:
        """Let the thread exit: the workers have exited."""
        self._ended.set()

    def _run(self) -> None:
        variables = {**environment(), **ONE_THREAD, **QUIET}
        try:
            for worker in self._workers:
                worker.start(self._settings, variables)
        except OSError as error:
            self._errors.append(error)
        self._started.set()
        self._ended.wait()


def shut_down(
    workers: Sequence[WorkerProcess], starter: Starter, owner: int, *, grace: float
) -> None:
    """Ask all workers to exit within `grace` seconds, then kill them. Does nothing in a forked
    child.
    """
    if os.getpid() != owner:
        return
    end = monotonic() + grace
    for worker in workers:
        if grace:
            _ask_to_close(worker)
        else:
            worker.kill()
    for worker in workers:
        worker.reap(max(end - monotonic(), 0.0) if grace else 10.0)
    starter.end()


def _ask_to_close(worker: WorkerProcess) -> None:
    try:
        worker.channel.connection.setblocking(False)
        worker.channel.send({"do": "close"})
    except OSError:
        worker.kill()
