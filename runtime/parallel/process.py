"""The worker processes of a pool, which the fork server of this process forks."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from threading import Event, Thread
from time import monotonic

from compiler.support.dataclass import dataclass
from runtime.collective.groups.segment import Segment
from runtime.collective.local_store import LocalStore
from runtime.errors import CollectiveError
from runtime.parallel.channel import Channel, Message
from runtime.parallel.fork_server import ForkServer, fork_server
from runtime.parallel.region import SharedRegion

SettingsText = Callable[[int], str]
"""Formats the settings of a worker, from its rank."""


@dataclass(frozen=True)
class Common:
    """What the workers of a pool share: a region for state that all get, the memory of their
    collectives, and the store at which they meet. None stands for Gloo or NCCL, and a TCPStore.
    """

    state: SharedRegion
    shared: Segment | None
    store: LocalStore | None


class WorkerProcess:
    """The caller's side of one worker: its process, its channel, and messages read early."""

    def __init__(self, rank: int, spin: float) -> None:
        _expect_linux()
        self.rank = rank
        self.inbox: deque[Message] = deque()
        self.pid = 0
        """The PID of its process, 0 before it was started."""
        self._server: ForkServer | None = None
        self._pidfd = -1
        self._code: int | None = None
        own, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = Channel(own, SharedRegion.create(), spin)

    def start(self, settings: SettingsText, common: Common) -> None:
        """Start the process. Raises OSError if it cannot be."""
        self._server = fork_server()
        region = self.channel.region.descriptor
        descriptors = {"socket": self.theirs.fileno(), "region": region}
        descriptors["state"] = common.state.descriptor
        if common.shared is not None:
            descriptors["shared"] = common.shared.descriptor
        store, text = common.store, settings(self.rank)
        with nullcontext() if store is None else store.open() as connection:
            if connection is not None:
                descriptors["store"] = connection.fileno()
            self.pid = self._server.fork(text, descriptors, imports_torch=store is None)
        self._pidfd = os.pidfd_open(self.pid)
        self.theirs.close()

    def has_ended(self) -> bool:
        """Whether the process has exited."""
        return self._pidfd >= 0 and bool(select.select([self._pidfd], [], [], 0)[0])

    def cause(self) -> str:
        """How the process ended, as text for an error."""
        code = self._exit_code()
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with code {code}"

    def _exit_code(self) -> int:
        """The exit code of the process, for which this waits."""
        if self._code is None:
            try:
                self._code = self._server.reap(self.pid) if self._server is not None else 0
            except OSError:  # the server has ended, and with it all workers
                self._code = -signal.SIGKILL
        return self._code

    def drain(self) -> None:
        """Read and keep the pending messages."""
        while self.channel.waits(0):
            message = self.channel.receive()
            if message is None:
                return
            self.inbox.append(message)

    def kill(self) -> None:
        """Kill the process, even if it is stopped."""
        if self._pidfd >= 0 and self._code is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def reap(self, limit: float) -> None:
        """Wait for the process to exit, kill it after `limit` seconds, and close its resources."""
        if self._pidfd >= 0:
            if not select.select([self._pidfd], [], [], limit)[0]:
                self.kill()
            self._exit_code()
            os.close(self._pidfd)
            self._pidfd = -1
        self.channel.connection.close()
        self.channel.region.close()


def _expect_linux() -> None:
    """Raise CollectiveError where workers cannot share memory with the caller, or be watched."""
    if not (hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")):
        raise CollectiveError(
            "several GPUs of one process need Linux, for memory shared with worker processes",
            hint="use one place",
        )


class Starter:
    """A thread that starts workers, while the caller does something else."""

    def __init__(
        self, workers: Sequence[WorkerProcess], settings: SettingsText, common: Common
    ) -> None:
        self._workers = workers
        self._settings = settings
        self._common = common
        self._started = Event()
        self._errors: list[OSError] = []
        Thread(target=self._run, daemon=True, name="workers").start()

    def wait(self) -> None:
        """Wait until the processes are started. Raises CollectiveError if one cannot be."""
        self._started.wait()
        if self._errors:
            raise CollectiveError(f"a worker cannot be started: {self._errors[0]}")

    def _run(self) -> None:
        try:
            for worker in self._workers:
                worker.start(self._settings, self._common)
        except OSError as error:
            self._errors.append(error)
        self._started.set()


def shut_down(
    workers: Sequence[WorkerProcess], state: SharedRegion, owner: int, *, grace: float
) -> None:
    """Ask all workers to exit within `grace` seconds, then kill them, and close their region for
    state. Does nothing in a forked child.
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
    state.close()


def _ask_to_close(worker: WorkerProcess) -> None:
    try:
        worker.channel.connection.setblocking(False)
        worker.channel.send({"do": "close"})
    except OSError:
        worker.kill()
