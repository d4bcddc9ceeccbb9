"""A parameter server: it serves until all trainers have completed, or a signal ends it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.memory.allocator import keep_freed_memory
from runtime.ps.service import Service
from runtime.ps.serving.asynchronous_shard import AsynchronousShard
from runtime.ps.serving.exchange import Exchange, Traffic
from runtime.ps.serving.members import Members
from runtime.ps.serving.port_file import port_file
from runtime.ps.serving.requests import RequestHandlers
from runtime.ps.serving.shard import UPDATES, Shard
from runtime.ps.serving.shutdown import Shutdown
from runtime.ps.serving.snapshot import Snapshot, read_snapshot, snapshot_path, write_snapshot
from runtime.ps.serving.sums import Sums
from runtime.ps.settings import Settings
from runtime.ps.telemetry.role import make_telemetry
from runtime.ps.wire.admission import Admission, Limits
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.peers import Peers
from runtime.ps.wire.transport import make_server
from runtime.wait_notice import WaitNotice

LOOK_SECONDS = 0.1
"""Interval at which a server checks its trainers."""
SNAPSHOTS = 1 << 20
"""The row of a trace with snapshots, below those of all trainers."""
GRACE_SECONDS = 2.0
"""Maximum duration of open calls when a server exits."""
ALONE_SECONDS = 1800.0
"""How long a server whose parent has ended waits for the first call: then it ends with an error."""
MIN_GUESTS = 16
"""Minimum number of calls at once of peers that own no trainer's id."""


class Server:
    """One server with all its parts. `sums` is what its modules call `parameter_server`.

    `attach` sets the service, whose update requires `sums`.
    """

    def __init__(self, endpoints: Sequence[str], number: int, settings: Settings) -> None:
        self.endpoint, self.number, self.settings = endpoints[number], number, settings
        self.servers = len(endpoints)
        self._peers = Peers(settings, Caller.new())
        self.sums = Sums(endpoints, number, self._peers.contribution, settings.deadline)
        self._shutdown = Shutdown(endpoints, number, self._peers, settings)
        self._stopping = threading.Event()
        self._started = time.monotonic()
        self._parent, self._alone_since = os.getppid(), float("inf")
        self._awaited: tuple[list[int], float | None] = [], None
        self._notice = self._wait_notice(None)
        self._saving = threading.Lock()
        self._writer: threading.Thread | None = None
        self._path: Path | None = None
        if settings.snapshot_dir:
            self._path = snapshot_path(settings.snapshot_dir, self.endpoint)

    def attach(self, service: Service) -> None:
        """Set the service, and restore its variables from the last snapshot if there is one.

        Raises WireError for a snapshot that is damaged or of another program.
        """
        self.service = service
        about = "server", self.number, self.endpoint
        self.telemetry = make_telemetry(self.settings, *about, lambda: self.step)
        self.log = self.telemetry.log
        self.telemetry.name_row(UPDATES, "updates")
        snapshot = None if self._path is None else read_snapshot(self._path)
        step = 0 if snapshot is None else snapshot.step
        self.shard = Shard(service, step, self._after_step, self.telemetry)
        self.shard.takes_snapshots = self._path is not None
        self.delayed = AsynchronousShard(service, step)
        self.sums.step = step
        self.members = Members(
            service.trainers, self.settings.lost_after, self.settings.return_within
        )
        self.traffic = Traffic()
        if snapshot is not None:
            self._restore(snapshot)

    def serve(self) -> None:
        """Serve until the end. Raises WireError for a failed job, naming the trainer."""
        keep_freed_memory()
        admission = Admission(self._limits(), self.members.is_owner)
        parts = self.service, self.shard, self.delayed, self.members, self.sums
        calls = RequestHandlers(
            *parts, self.traffic, self.telemetry, self._shutdown, self._snapshot_now, admission,
            self.settings.save_dir,
        )  # fmt: skip
        listening, port = make_server(
            self.endpoint, {"Call": calls.answer, "Hold": calls.hold},
            {"Fetch": calls.fetch, "Exchange": self._exchange},
            self.settings.security, admission, {"Beat": calls.beat},
        )  # fmt: skip
        listening.start()
        self._started = time.monotonic()
        self.log.info("serving", endpoint=self.endpoint, trainers=self.service.trainers)
        try:
            with _signals(self._stopping.set), port_file(port):
                self._look_after(admission)
        finally:
            self.members.close()
            listening.stop(GRACE_SECONDS).wait()
            self._join_writer()
            self._peers.close()
            self.telemetry.write()
        if not self._stopping.is_set():
            self._remove_snapshot()

    @property
    def step(self) -> int:
        """The last step that was applied; the number of updates in an asynchronous job."""
        return self.shard.step if self.service.is_synchronous else self.delayed.step

    def _limits(self) -> Limits:
        """The calls at once that this server answers."""
        trainers = self.service.trainers
        guests = max(MIN_GUESTS, self.service.threads) + 2 * self.servers
        return Limits(trainers, guests, connections=256 + 8 * (trainers + self.servers))

    def _exchange(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        parts = self.shard, self.members, self.traffic, self.telemetry
        yield from Exchange(*parts).served(messages, context)

    # ---- trainers that are lost

    def _look_after(self, admission: Admission) -> None:
        """Wait for the end; meanwhile, handle trainers that are lost or late."""
        while not self._stopping.wait(LOOK_SECONDS):
            admission.end_late()
            if self._shutdown.is_over(self.members):
                self.log.info("all trainers have completed")
                return
            if self.members.failure:
                self.shard.fail(self.members.failure)
            for trainer, why in self.members.lost().items():
                self._lose(trainer, why)
            self._expect_no_stall()
            self._report_wait()
            self._expect_all_trainers()
            self._expect_parent_or_calls()
            bytes_moved = {"received": self.traffic.received, "sent": self.traffic.sent}
            self.log.progress(time.monotonic(), **bytes_moved)
            if self.shard.failure:
                self.log.warning("the job failed", why=self.shard.failure)
                self._tell()
                raise WireError(self.shard.failure)
        self.log.info("ends on a signal")
        self._snapshot_now()

    def _tell(self) -> None:
        """Report the failure of the job to trainers that are waiting or connect soon."""
        someone = len(self.members.absent()) < self.service.trainers
        end = time.monotonic() + GRACE_SECONDS * someone
        while time.monotonic() < end and not self.members.all_disconnected:
            time.sleep(LOOK_SECONDS)

    def _lose(self, trainer: int, why: str) -> None:
        policy = self.settings.policy
        if policy == "wait":
            return
        text = f"trainer {trainer} is lost: {why}"
        if policy == "fail":
            self.shard.fail(f"{text}, at step {self.shard.step + 1} of server {self.endpoint}")
            return
        self.log.warning("continues without a trainer", trainer=trainer, why=why)
        self.members.drop(trainer)
        self.shard.drop(trainer)

    def _expect_no_stall(self) -> None:
        """Fail a step that takes longer than the deadline, or drop the trainers that are late."""
        since = self.shard.waiting_since
        if since is None or time.monotonic() - since < self.settings.deadline:
            return
        for trainer in self.shard.late_trainers():
            why = f"it sent nothing complete for {self.settings.deadline:g} s"
            self._lose(trainer, why)

    def _wait_notice(self, limit: float | None) -> WaitNotice:
        return WaitNotice(lambda text: self.log.warning(text), limit)

    def _report_wait(self) -> None:
        """Report the trainers that a step waits for, or that have never connected."""
        awaited = late, limit = self._late()
        if awaited != self._awaited:
            self._awaited = awaited
            self._notice = self._wait_notice(limit)
        if late:
            self._notice.tick(lambda: f"trainer {', '.join(map(str, late))}")

    def _late(self) -> tuple[list[int], float | None]:
        """The trainers that are waited for, and for how many seconds at most: a step waits with all
        policies but `wait`, and with that one what has never connected is waited for so long.
        """
        late = self.shard.late_trainers() if self.shard.waiting_since is not None else []
        absent, deadline = self.members.absent(), self.settings.deadline
        if self.settings.policy == "wait":
            return (absent, deadline) if absent else (late, None)
        return (late, deadline) if late else (absent, None)

    def _expect_all_trainers(self) -> None:
        """With policy `wait`, fail if a trainer has not connected within the deadline: the job may
        have ended before this server was started again.
        """
        seconds = self.settings.deadline
        if self.settings.policy != "wait" or time.monotonic() - self._started < seconds:
            return
        absent = self.members.absent()
        if absent:
            alone = len(absent) == self.service.trainers
            who = "no trainer" if alone else f"trainer {', '.join(map(str, absent))}"
            self.shard.fail(
                f"{who} has {'' if alone else 'not '}connected to server {self.endpoint} within "
                f"{seconds:g} s (FLAGS_rpc_deadline): has the job ended before this server started?"
            )

    def _expect_parent_or_calls(self) -> None:
        """Fail if the parent has ended and nobody has ever called: the job ended with the parent,
        before trainers that could complete it came.
        """
        if self.traffic.messages or os.getppid() == self._parent:
            return
        now = time.monotonic()
        self._alone_since = min(self._alone_since, now)
        if now - self._alone_since > ALONE_SECONDS:
            self.shard.fail(
                f"the process that started server {self.endpoint} has ended, and nobody has called "
                f"the server in the {ALONE_SECONDS:g} s since: start trainers sooner"
            )

    # ---- snapshots

    def _after_step(self, step: int) -> None:
        """Take a snapshot if one is due; the lock of the shard is held."""
        self.sums.step = step
        if self._path is None or step - self.shard.snapshot_step < self.settings.snapshot_steps:
            return
        if self._writer is not None and self._writer.is_alive():
            return
        snapshot = self._copied(step)
        self._writer = threading.Thread(target=self._write_newer, args=(snapshot,), daemon=True)
        self._writer.start()

    def _copied(self, step: int) -> Snapshot:
        arrays = {name: np.array(value) for name, value in self.service.variables().items()}
        sums = {
            name: {str(number): raw.hex() for number, raw in steps.items()}
            for name, steps in self.sums.kept().items()
        }
        extra = {"sums": sums, "applied": list(map(list, self.delayed.applied.items()))}
        return Snapshot(step, arrays, extra | {"completed": self.members.finished()})

    def _write_newer(self, snapshot: Snapshot) -> None:
        """Write a snapshot unless a later one was written meanwhile."""
        with self._saving:
            if snapshot.step > self.shard.snapshot_step:
                self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        assert self._path is not None
        started, began = time.monotonic(), self.telemetry.now()
        write_snapshot(self._path, snapshot)
        self.shard.snapshot_step = snapshot.step
        seconds = round(time.monotonic() - started, 3)
        self.log.info("wrote a snapshot", snapshot=snapshot.step, seconds=seconds)
        self.telemetry.name_row(SNAPSHOTS, "snapshots")
        self.telemetry.span("snapshot", SNAPSHOTS, began, snapshot.step)

    def _snapshot_now(self) -> None:
        """Write a snapshot of the current state: at a signal, when a trainer has completed, and
        before one joins, which cannot repeat the steps of the process that it replaces.
        """
        if self._path is None:
            return
        with self._saving:
            with self.shard.changed, self.delayed.lock:
                snapshot = self._copied(self.step)
            self._write(snapshot)

    def _restore(self, snapshot: Snapshot) -> None:
        variables = self.service.variables()
        for name, array in snapshot.arrays.items():
            _expect_alike(name, array, variables)
            self.service.assign(name, array)
        for name, steps in snapshot.extra.get("sums", {}).items():
            for number, raw in steps.items():
                self.sums.put(str(name), int(number), bytes.fromhex(raw))
        for trainer, (sender, number) in snapshot.extra.get("applied", []):
            self.delayed.applied[int(trainer)] = str(sender), int(number)
        for trainer in snapshot.extra.get("completed", []):
            self.members.complete(int(trainer))
            self.shard.drop(int(trainer))
        self.log.info("continues from a snapshot", snapshot=snapshot.step)

    def _join_writer(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _remove_snapshot(self) -> None:
        """Remove the snapshot of a finished job, from which the next one would start."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _expect_alike(name: str, array: Array, variables: Mapping[str, Array]) -> None:
    variable = variables.get(name)
    if variable is None or variable.shape != array.shape or variable.dtype != array.dtype:
        actual = "nothing" if variable is None else f"{variable.dtype} {variable.shape}"
        raise WireError(
            f"the snapshot has {name!r} as {array.dtype} {array.shape}, the program has {actual}",
            hint="remove the snapshot to start from the startup program",
        )


class _signals:
    """Calls a function at SIGTERM within a `with` block of the main thread."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._handle)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._call()
