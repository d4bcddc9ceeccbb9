"""Single calls to servers: with deadlines, retried until the server answers or the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.telemetry.logs import LOGGER
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.packets import field, pack, read_values, unpack
from runtime.ps.wire.transport import grpc, open_channel, stream_call, unary_call
from runtime.wait_notice import WaitNotice

RETRY_SECONDS = 0.2
MAX_RESPONSE_BYTES = 1 << 38
"""Maximum bytes of one response, if the caller expects no particular number."""


class Peers:
    """Channels to servers, opened on first use. `caller` is who makes the calls."""

    def __init__(self, settings: Settings, caller: Caller | None = None) -> None:
        self.settings = settings
        self.caller = caller or Caller.new()
        self.metadata = (*settings.security.metadata(), *self.caller.metadata())
        self._channels: dict[str, Any] = {}
        self._lock = Lock()

    def channel(self, endpoint: str) -> Any:
        """The channel to a server."""
        with self._lock:
            if endpoint not in self._channels:
                self._channels[endpoint] = open_channel(endpoint, self.settings.security)
            return self._channels[endpoint]

    def call(
        self, endpoint: str, header: Mapping[str, Any], raw: bytes = b"", seconds: float = 0.0,
        away: float | None = None,
    ) -> tuple[dict[str, Any], memoryview]:  # fmt: skip
        """Call a server, retrying if it cannot be reached. Finally raises WireError naming it.

        It has `seconds` to answer, and may be away for so many of them (`Settings.away`).
        """
        send = unary_call(self.channel(endpoint), "Call")
        message = pack(header, raw)
        limit = seconds or self.settings.reconnect

        def once(left: float) -> tuple[dict[str, Any], memoryview]:
            return unpack(send(message, timeout=left, metadata=self.metadata))

        return self._repeated(endpoint, limit, once, away)

    def fetch(
        self,
        endpoint: str,
        header: Mapping[str, Any],
        raw: bytes = b"",
        most: int = MAX_RESPONSE_BYTES,
    ) -> tuple[dict[str, Any], list[Array]]:
        """Fetch variables of a server; raises as `call` does, and for more than `most` bytes."""
        request = pack(header, raw)
        stream = stream_call(self.channel(endpoint), "Fetch")

        def once(left: float) -> tuple[dict[str, Any], list[Array]]:
            calls = stream(iter([request]), timeout=left, metadata=self.metadata)
            description, _ = unpack(next(calls))
            return description, read_values(field(description, "arrays", list), calls, most)

        return self._repeated(endpoint, self.settings.deadline, once)

    def beat(self, endpoint: str, seconds: float) -> dict[str, Any]:
        """Send a heartbeat, which claims the trainer's id of this caller; raises as `call` does."""
        send = unary_call(self.channel(endpoint), "Beat")

        def once(left: float) -> dict[str, Any]:
            return unpack(send(b"", timeout=left, metadata=self.metadata))[0]

        return self._repeated(endpoint, seconds, once, seconds)

    def hold(self, endpoint: str) -> Any:
        """Start a call that lasts as long as the id belongs to this caller; returns its future."""
        call: Any = unary_call(self.channel(endpoint), "Hold")
        return call.future(b"", metadata=self.metadata)

    def contribution(self, endpoint: str, name: str, step: int) -> bytes:
        """Fetch a server's contribution to a sum at a step."""
        header = {"do": "sum", "name": name, "step": step}
        return bytes(self.call(endpoint, header, seconds=self.settings.deadline)[1])

    def close(self) -> None:
        """Close all channels."""
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _repeated(
        self, endpoint: str, limit: float, once: Callable[[float], Any], away: float | None = None
    ) -> Any:
        """Retry a call while its server cannot be reached; return its result."""
        rpc, end = grpc(), time.monotonic() + limit
        until = end
        waits = WaitNotice(lambda text: LOGGER.warning("%s %s", self.caller, text), limit)
        while True:
            try:
                return once(max(0.01, end - time.monotonic()))
            except rpc.RpcError as error:
                now, answered = time.monotonic(), error.code() is rpc.StatusCode.ABORTED
                if not answered:
                    until = min(until, now + (self.settings.away if away is None else away))
                if now + RETRY_SECONDS >= until or not is_passing(rpc, error):
                    raise unreachable(endpoint, error) from error
                waits.tick(lambda: f"server {endpoint}, which does not answer")
                time.sleep(RETRY_SECONDS)
                if answered and self.caller.trainer is not None:
                    self._claim(endpoint)

    def _claim(self, endpoint: str) -> None:
        """Claim the trainer's id of a server that has restarted, if it answers."""
        send = unary_call(self.channel(endpoint), "Beat")
        with suppress(grpc().RpcError):
            send(b"", timeout=RETRY_SECONDS, metadata=self.metadata)


def is_passing(rpc: Any, error: Any) -> bool:
    """Whether a failure is transient, so that a retry may succeed."""
    codes = rpc.StatusCode
    return error.code() in (codes.UNAVAILABLE, codes.CANCELLED, codes.ABORTED)


def unreachable(endpoint: str, error: Any) -> WireError:
    """Build the error of a failed call: the server's message, or that it does not answer.

    `error` is StopIteration for a server that closed the stream, or that has no connection.
    """
    if isinstance(error, StopIteration):
        return _silent(endpoint, "no connection")
    code, details = error.code().name, error.details() or ""
    if code == "UNAUTHENTICATED":
        hint = "FLUID_PS_TOKEN must be the same in all processes of the job"
        return WireError(f"server {endpoint}: {details}", hint=hint)
    if code in ("FAILED_PRECONDITION", "ABORTED"):
        return WireError(f"server {endpoint}: {details}", hint="the server's own log says more")
    return _silent(endpoint, f"{code}: {details[:200]}")


def _silent(endpoint: str, why: str) -> WireError:
    return WireError(
        f"server {endpoint} does not answer ({why})",
        hint="is it running? FLUID_PS_RECONNECT_SECONDS sets how long trainers wait for it",
    )
