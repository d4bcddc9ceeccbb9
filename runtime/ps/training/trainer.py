"""The object that modules of a trainer call `parameter_server`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.files.checkpoint import save_tensor
from runtime.memory.allocator import keep_freed_memory
from runtime.ps.settings import Settings
from runtime.ps.telemetry.role import make_telemetry
from runtime.ps.training.communicator import Geo, Merging
from runtime.ps.training.gradient_packer import GradientPacker, read_gradients
from runtime.ps.training.heartbeats import Heartbeats
from runtime.ps.training.numbered_gradients import NumberedGradients
from runtime.ps.training.stream import Stream
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.layout import make_layout
from runtime.ps.wire.packets import MAX_ROWS
from runtime.ps.wire.peers import Peers

STEPS = 0
"""The row of a trace with the steps; those of the servers follow."""
CLOCK_CALLS = 5
"""Number of calls to estimate the clock offset of a server."""
LEAVE_SECONDS = 1.0
"""Timeout of a server's answer at process exit; the server may have exited."""


class Remote:
    """One server as a trainer sees it."""

    def __init__(self, endpoint: str, catalogue: dict[str, Any], trainer: int) -> None:
        self.endpoint = endpoint
        self.is_synchronous = bool(catalogue["synchronous"])
        self.trainers = int(catalogue["trainers"])
        self.step = int(catalogue["step"])
        self.awaits_ends = bool(catalogue["awaits_ends"])
        self.gradients = read_gradients(catalogue, trainer)
        self.stream: Stream | None = None
        self.packer: GradientPacker | None = None


class Trainer:
    """One trainer of a job whose servers are at `endpoints`.

    Threads: the one that runs programs calls the methods that modules call; `complete` and `close`
    may be called by any.
    """

    def __init__(self, number: int, endpoints: Sequence[str], settings: Settings) -> None:
        keep_freed_memory()
        self.number, self.settings = number, settings
        self.telemetry = make_telemetry(settings, "trainer", number, "", lambda: self._making)
        self.telemetry.name_row(STEPS, "steps")
        self._began = 0
        self._endpoints = list(endpoints)
        self._received: dict[str, list[str]] = {}
        self.sender = f"{number}-{os.getpid()}-{uuid4().hex[:8]}"
        self.communicator: Merging | Geo | None = None
        self._caller = Caller.new(number)
        self._peers = Peers(settings, self._caller)
        self._gradients = NumberedGradients(self._peers, number, self.sender)
        self._remotes: dict[str, Remote] = {}
        self._making = 0
        self._is_sending = False
        self._heartbeats = Heartbeats(self._caller, settings, self._lose)
        self._closed = False

    # ---- what modules call

    def send(
        self,
        names: Sequence[str],
        endpoints: Sequence[str],
        arrays: Sequence[Array],
        rows: Sequence[Array] | None,
        trainer_id: int,
        merge_add: bool,
        through_communicator: bool,
    ) -> None:
        """Send gradients, or with `merge_add` add to counters."""
        for index, (name, endpoint) in enumerate(zip(names, endpoints, strict=True)):
            numbers = rows[index] if rows else None
            if merge_add:
                self._gradients.add(endpoint, name, arrays[index])
                continue
            remote = self.remote(endpoint)
            if remote.is_synchronous:
                self._send_step(remote, name, arrays[index], numbers)
            elif self.communicator is not None and through_communicator:
                self.communicator.put(endpoint, name, arrays[index], numbers)
            else:
                self._gradients.push(endpoint, name, arrays[index], numbers)

    def send_barrier(self, endpoints: Sequence[str], trainer_id: int, half_async: bool) -> None:
        """End a step; with `half_async`, wait until the communicator has sent everything."""
        if self.communicator is not None:
            self.communicator.flush()
        self._end_step(endpoints)

    def recv(
        self, names: Sequence[str], endpoints: Sequence[str], trainer_id: int
    ) -> Sequence[Array]:
        """Return variables as they are after the last step sent."""
        self._end_step(endpoints)
        if self.communicator is not None and self.communicator.answers(names, endpoints):
            return self.communicator.recv(names, endpoints)
        results: list[Array] = [np.empty(0)] * len(names)
        asked: dict[str, list[int]] = {}
        for index, (name, endpoint) in enumerate(zip(names, endpoints, strict=True)):
            stream = self.remote(endpoint).stream
            if stream is not None and stream.has(name):
                stream.wait(self._making)
                results[index] = stream.variable(name)
            else:
                asked.setdefault(endpoint, []).append(index)
        for endpoint, positions in asked.items():
            values = self.read(endpoint, [names[index] for index in positions])
            for index, value in zip(positions, values, strict=True):
                results[index] = value
        return results

    def fetch_barrier(self, endpoints: Sequence[str], trainer_id: int) -> None:
        """Wait for every server, so that those that send nothing stay in step as well."""
        for endpoint in endpoints:
            stream = self.remote(endpoint).stream
            if stream is not None:
                stream.wait(self._making)
        self._trace_step("exchange")
        self.telemetry.log.progress(time.monotonic())

    def prefetch(
        self,
        names: Sequence[str],
        endpoints: Sequence[str],
        rows: Sequence[Array],
        trainer_id: int,
    ) -> Sequence[Array]:
        """Return rows of tables, [count, width] each."""
        return [
            self._rows(endpoint, name, np.ascontiguousarray(ids, np.int64))
            for name, endpoint, ids in zip(names, endpoints, rows, strict=True)
        ]

    def checkpoint_notify(
        self, endpoints: Sequence[str], directory: str, table: str, trainer_id: int
    ) -> None:
        """Ask servers to save their part of a table under a directory, which is in the folder of
        their setting FLUID_PS_SAVE_DIR. Raises WireError if it is not.
        """
        for endpoint in endpoints:
            self.remote(endpoint)
            header = {"do": "save", "trainer": self.number, "name": table, "folder": directory}
            self._peers.call(endpoint, header, seconds=self.settings.deadline)

    def save_tensor(self, file_path: str, array: Array, overwrite: bool) -> None:
        """Write an array as `fluid.io.save_vars` does; FileExistsError without `overwrite`."""
        if not overwrite and Path(file_path).exists():
            raise FileExistsError(f"{file_path} exists, and 'overwrite' is False")
        save_tensor(file_path, array)

    def sum_over_servers(self, name: str, array: Array) -> Array:
        """Not supported: only servers sum over servers."""
        raise WireError(f"{name!r} is summed over servers, which a trainer cannot do")

    # ---- servers

    def remote(self, endpoint: str) -> Remote:
        """Return a server, whose catalogue is read on first use."""
        if endpoint not in self._remotes:
            self._join(dict.fromkeys([*self._endpoints, endpoint]))
        return self._remotes[endpoint]

    def _join(self, endpoints: Iterable[str]) -> None:
        """Read the catalogues of servers; start at the step that all of them have."""
        is_first = not self._remotes
        for endpoint in endpoints:
            if endpoint not in self._remotes:
                self._heartbeats.add(endpoint)
                catalogue = self._hello(endpoint)
                self._remotes[endpoint] = Remote(endpoint, catalogue, self.number)
                self._compare_clocks(endpoint)
        if is_first:
            self._making = min(remote.step for remote in self._remotes.values())

    def _hello(self, endpoint: str) -> dict[str, Any]:
        """Read the catalogue of a server, which may not have started yet, or write a snapshot."""
        header, settings = {"do": "hello", "trainer": self.number}, self.settings
        seconds = max(settings.reconnect, settings.deadline)
        return self._peers.call(endpoint, header, seconds=seconds, away=settings.reconnect)[0]

    def _compare_clocks(self, endpoint: str) -> None:
        """Record a server's clock offset in the trace, from the fastest of several calls."""
        if self.telemetry.trace is None:
            return
        samples: list[tuple[int, int]] = []
        for _ in range(CLOCK_CALLS):
            asked = time.time_ns()
            answer = self._peers.beat(endpoint, self.settings.reconnect)
            answered = time.time_ns()
            ahead = int(answer["time"]) - (asked + answered) // 2
            samples.append((answered - asked, ahead))
        self.telemetry.trace.clocks[endpoint] = min(samples)[1]

    def subscribe(self, received: Mapping[str, Sequence[str]]) -> None:
        """Let the servers of some endpoints send these variables after each step.

        Other variables are read by a separate call. Has an effect only before the first step.
        """
        for endpoint, names in received.items():
            subscribed = self._received.setdefault(endpoint, [])
            subscribed += [name for name in names if name not in subscribed]

    def read(self, endpoint: str, names: Sequence[str]) -> list[Array]:
        """Read variables of a server after the last step of this trainer."""
        header = {"do": "read", "names": list(names), "step": self._making}
        if not self.remote(endpoint).is_synchronous:
            header |= {"step": 0, "trainer": self.number}
        return self._peers.fetch(endpoint, header)[1]

    def start_merging(self, most: int, waiting: int) -> None:
        """Send gradients from a thread: merged up to `most`, up to `waiting` of each variable."""
        self.communicator = Merging(self._gradients, most, waiting)

    def start_geo(self, steps: int, delta: str) -> None:
        """Send parameter deltas at a fixed interval of steps."""
        self.communicator = Geo(self._peers, self._gradients, steps, self._trainers, delta)

    def _trainers(self) -> int:
        """The number of trainers of the job, by its servers."""
        self._join(self._endpoints)
        return max(remote.trainers for remote in self._remotes.values())

    @property
    def step(self) -> int:
        """The last step of this trainer, or of its servers before it joined."""
        if not self._remotes:
            self._join(self._endpoints)
        return self._making

    def complete(self) -> None:
        """Notify all servers that this trainer has finished. Raises WireError naming one that does
        not answer.
        """
        if self.communicator is not None:
            self.communicator.stop()
        header = {"do": "complete", "trainer": self.number}
        try:
            for endpoint, remote in self._remotes.items():
                self._peers.call(endpoint, header, seconds=self.settings.deadline)
                if remote.stream is not None:
                    remote.stream.close()
        finally:
            self.close()
        self.telemetry.log.info("completed")

    @property
    def awaits_end(self) -> bool:
        """Whether a server waits for the exit of this process after it has completed."""
        return any(remote.awaits_ends for remote in self._remotes.values())

    def leave(self) -> None:
        """Notify servers that wait for it that this process, which has completed, exits."""
        peers = Peers(self.settings, self._caller)
        for endpoint, remote in self._remotes.items():
            try:
                if remote.awaits_ends:
                    header = {"do": "leave", "trainer": self.number}
                    peers.call(endpoint, header, seconds=LEAVE_SECONDS, away=0.0)
            except WireError:
                continue
        peers.close()

    def abort(self, why: str) -> None:
        """Notify all servers that this trainer failed with an error, and close."""
        self.telemetry.log.warning("ends by an error", why=why)
        for remote in self._remotes.values():
            if remote.stream is not None:
                remote.stream.leave_broken()
        for endpoint in self._remotes:
            try:
                header = {"do": "abort", "trainer": self.number, "why": why}
                self._peers.call(endpoint, header, seconds=2.0, away=0.0)
            except WireError:
                continue
        self.close()

    def close(self) -> None:
        """Close all connections; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._heartbeats.close()
        for remote in self._remotes.values():
            if remote.stream is not None:
                remote.stream.close()
        self._peers.close()
        self.telemetry.write()

    # ---- steps

    def _trace_step(self, ended: str) -> None:
        """Record the half of a step that ends now; the first time, only record the time."""
        began = self._began
        self._began = self.telemetry.now()
        if began:
            self.telemetry.span(ended, STEPS, began, self._making)

    def _send_step(self, remote: Remote, name: str, array: Array, rows: Array | None) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._making += 1
            self._trace_step("compute")
        self._packer(remote).send(self._making, name, array, rows)

    def _packer(self, remote: Remote) -> GradientPacker:
        if remote.packer is None or remote.stream is None:
            names = self._received.get(remote.endpoint, [])
            before = self._making - 1
            arrays = self._peers.fetch(remote.endpoint, {"do": "read", "names": names, "step": 0})[
                1
            ]
            described = zip(names, arrays, strict=True)
            layout = make_layout((n, str(a.dtype), a.shape) for n, a in described)
            row = 1 + list(self._remotes).index(remote.endpoint)
            self.telemetry.name_row(row, f"server {remote.endpoint}")
            who = remote.endpoint, self.number, self._caller
            stream = Stream(*who, layout, self.settings, before, self.telemetry, row)
            stream.connect()
            remote.stream = stream
            remote.packer = GradientPacker(
                remote.endpoint, self.number, remote.gradients, stream.put
            )
        return remote.packer

    def _end_step(self, endpoints: Sequence[str]) -> None:
        """Notify servers that the step is complete, unless already done."""
        if not self._is_sending:
            return
        self._is_sending = False
        for endpoint in dict.fromkeys([*endpoints, *self._remotes]):
            remote = self.remote(endpoint)
            if remote.is_synchronous:
                steps = self._packer(remote)
                steps.end(self._making)
                assert remote.stream is not None
                remote.stream.end(self._making)

    def _rows(self, endpoint: str, name: str, ids: Array) -> Array:
        self.remote(endpoint)
        parts: list[Array] = []
        for start in range(0, max(1, len(ids)), MAX_ROWS):
            some = ids[start : start + MAX_ROWS]
            header = {"do": "rows", "name": name}
            parts += self._peers.fetch(endpoint, header, some.tobytes())[1]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _lose(self, endpoint: str, why: str) -> None:
        """Raise in the callers waiting for a server that does not respond. Called by the watch
        thread.
        """
        remote = self._remotes.get(endpoint)
        if remote is not None and remote.stream is not None:
            remote.stream.cancel(why)
