"""A trainer's open stream to one server in synchronous steps, reopened if the server restarts.

Messages of a step are kept until a snapshot of the server covers them. When a connection breaks, a
new one is opened, the server sends its current step, and everything newer is sent again. A thread
does that for a server that the trainer does not wait for: other trainers may wait for the messages
that the server has lost, and other servers for those trainers.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.telemetry.role import Telemetry, gradient_arrow, parameter_arrow
from runtime.ps.wire.assembly import Assembly
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.frames import Frame, Kind, mark_end, read_frame, text_frame
from runtime.ps.wire.layout import ShardLayout
from runtime.ps.wire.peers import RETRY_SECONDS, unreachable
from runtime.ps.wire.transport import grpc, open_channel, stream_call


class Stream:
    """One trainer and one server. `layout` is that of the variables received after each step."""

    def __init__(
        self, endpoint: str, trainer: int, caller: Caller, layout: ShardLayout, settings: Settings,
        step: int, telemetry: Telemetry, row: int,
    ) -> None:  # fmt: skip
        self.endpoint, self.trainer, self.layout = endpoint, trainer, layout
        self._metadata = (*settings.security.metadata(), *caller.metadata())
        self.step = step
        self.snapshot = step
        self._settings = settings
        self._telemetry, self._row, self._began = telemetry, row, 0
        self._variables = Assembly(layout)
        self._log: deque[tuple[int, list[bytes]]] = deque()
        self._held: bytes | None = None
        self._lock = Lock()
        self._in_use = Lock()  # by the thread that sends, receives or reopens
        self._ends = self._closed = False
        self._failure: WireError | None = None
        self._channel: Any = None
        self._call: Any = None
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._why = ""

    # ---- sending

    def put(self, step: int, message: bytes) -> None:
        """Send a message of a step; one is held back, so that the last can be marked."""
        with self._in_use:
            self._flush()
            if not self._log or self._log[-1][0] != step:
                self._log.append((step, []))
                self._began = self._telemetry.now()
            self._log[-1][1].append(message)
            self._held = message

    def end(self, step: int) -> None:
        """Send the last message of a step. `put` was called for the step."""
        with self._in_use:
            if self._held is not None:
                mark_end(self._held)
            self._flush()
        if self._telemetry.trace is not None:
            arrow = gradient_arrow(step, self.trainer, self.endpoint)
            self._began = self._span("send gradients", step, begins=arrow)

    def _span(self, name: str, step: int, **arrow: str) -> int:
        return self._telemetry.span(name, self._row, self._began, step, **arrow)

    def _flush(self) -> None:
        if self._held is not None and self._call is not None:
            self._outbox.put(self._held)
        self._held = None

    # ---- receiving

    def wait(self, step: int) -> None:
        """Receive the variables of a step or a later one.

        Raises WireError for a failed job, and for a server that does not answer in time.
        """
        with self._in_use:
            while self.step < step:
                self._receive_or_reopen()
            while self._log and self._log[0][0] <= min(self.snapshot, self.step):
                self._log.popleft()

    def _receive_or_reopen(self) -> None:
        """Receive a version, or reopen the stream if it breaks."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        try:
            if self._call is None:
                self._reopen(time.monotonic())
            self._receive()
        except (grpc().RpcError, StopIteration) as error:
            self._lose(error)
        else:
            if self._telemetry.trace is not None:
                arrow = parameter_arrow(self.step, self.trainer, self.endpoint)
                self._span("wait for parameters", self.step, ends=arrow)

    def has(self, name: str) -> bool:
        """Whether a variable is received after each step."""
        return self._variables.has(name)

    def variable(self, name: str) -> Array:
        """A variable as last received; the next step may overwrite the array."""
        return self._variables.block(name)

    def _receive(self) -> None:
        """Receive all messages of one version."""
        step, lag = self.step, 0
        for _ in self.layout.chunks:
            frame = self._kept(read_frame(next(self._call)))
            step, lag = frame.step, frame.trainer
        self.step, self.snapshot = step, step - lag

    def _kept(self, frame: Frame) -> Frame:
        """Store the data of a frame; WireError for one that does not belong here."""
        if frame.kind is Kind.FAILED:
            self._ends = True
            raise WireError(frame.data.tobytes().decode(errors="replace"))
        index = self._variables.index(frame.offset, len(frame.data))
        if frame.kind is not Kind.PARAMETER or index is None:
            raise WireError(f"server {self.endpoint} sent {frame.kind.name} at {frame.offset}")
        self._variables.put(index, frame.data)
        return frame

    # ---- connections

    def connect(self) -> None:
        """Open the stream; does nothing if it is open."""
        with self._in_use:
            if self._call is None:
                self._reopen(time.monotonic())

    def _reopen(self, since: float) -> None:
        """Open a stream and resend what the server has not received, until the deadline."""
        rpc = grpc()
        while True:
            try:
                return self._try_open()
            except (rpc.RpcError, StopIteration) as error:
                self._drop_call()
                refused = not isinstance(error, StopIteration) and _is_refusal(rpc, error)
                is_over = self._closed or time.monotonic() - since > self._settings.away
                if refused or is_over:
                    raise unreachable(self.endpoint, error) from error
                time.sleep(RETRY_SECONDS)

    def _try_open(self) -> None:
        self._channel = open_channel(self.endpoint, self._settings.security)
        rpc = grpc()
        ready = rpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=2.0)
        except rpc.FutureTimeoutError as error:
            ready.cancel()
            raise StopIteration from error
        self._outbox = SimpleQueue()
        names = [block.name for block in self.layout.blocks]
        hello = text_frame(Kind.HELLO, self.trainer, self.step, json.dumps({"names": names}))
        self._outbox.put(hello)
        messages = iter(self._outbox.get, None)
        call = stream_call(self._channel, "Exchange")(messages, metadata=self._metadata)
        with self._lock:
            self._call = call
            if self._closed:
                call.cancel()
        answer = read_frame(next(call))
        if answer.kind is not Kind.HELLO:
            raise WireError(answer.data.tobytes().decode(errors="replace"))
        self._telemetry.log.info("connected", server=self.endpoint, server_step=answer.step)
        self._send_again(answer.step)
        call.add_done_callback(self._when_broken)

    def _send_again(self, step: int) -> None:
        """Resend the messages of all steps after `step`, which the server has, and of those whose
        parameters were not received: the server ignores these but for the last, which it answers.
        """
        if (self._log and self._log[0][0] > step + 1) or (not self._log and step < self.step):
            raise WireError(
                f"server {self.endpoint} is at step {step}, whose messages this trainer has "
                f"dropped: it is at step {self.step}",
                hint="set FLUID_PS_SNAPSHOT_DIR, so that a server that restarts continues",
            )
        for number, messages in self._log:
            if number > min(step, self.step):
                for message in messages:
                    if message is not self._held:
                        self._outbox.put(message)

    def _lose(self, error: Any) -> None:
        """Reopen a broken stream; WireError if the server rejected it or the deadline has
        passed.
        """
        rpc = grpc()
        self._drop_call()
        if self._why:
            raise WireError(self._why) from error
        self._telemetry.log.warning("the connection broke", server=self.endpoint)
        if isinstance(error, rpc.RpcError) and _is_refusal(rpc, error):
            raise unreachable(self.endpoint, error) from error
        self._reopen(time.monotonic())

    def _when_broken(self, call: Any) -> None:
        """Reopen a stream that has ended; gRPC's thread calls this."""
        if not self._ends and self._call is call:
            Thread(target=self._restore, args=(call,), daemon=True, name="fluid-ps-reopen").start()

    def _restore(self, call: Any) -> None:
        """Reopen a broken stream, unless the thread that uses it has; `wait` raises a failure."""
        with self._in_use:
            if not self._ends and self._call is call:
                try:
                    self._lose(call)
                except WireError as error:
                    self._failure = error
            if self._closed:
                self._drop_call()

    def leave_broken(self) -> None:
        """From now on do not reopen the stream in the background: the trainer ends."""
        self._ends = True

    def cancel(self, why: str) -> None:
        """Break the stream and let `wait` raise; any thread may call."""
        with self._lock:
            self._why = why
            if self._call is not None:
                self._call.cancel()

    def _drop_call(self) -> None:
        with self._lock:
            call, self._call = self._call, None
        self._outbox.put(None)
        if call is not None:
            call.cancel()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def close(self) -> None:
        """Close the stream, or let the thread that reopens it do so. Any thread may call."""
        self._ends = self._closed = True
        with self._lock:
            if self._call is not None:
                self._call.cancel()
        if self._in_use.acquire(blocking=False):
            self._drop_call()
            self._in_use.release()


def _is_refusal(rpc: Any, error: Any) -> bool:
    """Whether a server answered with an error: retrying is of no use."""
    code = error.code()
    return code in (rpc.StatusCode.FAILED_PRECONDITION, rpc.StatusCode.UNAUTHENTICATED)


def wait_all(streams: Sequence[Stream], step: int) -> None:
    """Receive the variables of a step from all servers."""
    for stream in streams:
        stream.wait(step)
