"""The open stream of a trainer in synchronous steps, on the server: gradients up, parameters down.

The first message of a trainer identifies it and lists the variables it requests after each step;
the first answer has the current step of the server. From then on the trainer sends what is newer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.errors import WireError
from runtime.ps.serving.cancellable_waits import ending
from runtime.ps.serving.members import Members
from runtime.ps.serving.shard import Shard
from runtime.ps.telemetry.role import Telemetry, gradient_arrow, parameter_arrow
from runtime.ps.wire.callers import Caller, caller_of
from runtime.ps.wire.frames import Frame, Kind, read_frame, text_frame
from runtime.ps.wire.packets import first_message, names_field, read_header


@dataclass
class Traffic:
    """Bytes and messages that a server has received and sent."""

    received: int = 0
    sent: int = 0
    messages: int = 0


class Exchange:
    """One stream; `served` yields the answers."""

    def __init__(
        self, shard: Shard, members: Members, traffic: Traffic, telemetry: Telemetry
    ) -> None:
        self._shard, self._members, self._traffic = shard, members, traffic
        self._telemetry = telemetry

    def served(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer the messages of one trainer. Raises WireError for an invalid one."""
        hello = read_frame(first_message(messages))
        if hello.kind is not Kind.HELLO or hello.trainer >= self._shard.service.trainers:
            raise WireError(f"an exchange begins with {hello.kind.name} of trainer {hello.trainer}")
        caller = caller_of(context.invocation_metadata(), context.peer())
        names = _wanted(hello)
        self._members.connect(hello.trainer, caller.session)
        try:
            with self._shard.subscribed(names) as key:
                yield from self._connected(hello.trainer, caller, key, messages, context)
        finally:
            self._members.disconnect(hello.trainer, caller.session)

    def _connected(
        self, trainer: int, caller: Caller, key: tuple[str, ...], messages: Iterator[bytes],
        context: Any,
    ) -> Iterator[bytes]:  # fmt: skip
        """Answer the messages behind the first one."""
        ended = ending(context, self._shard.changed)
        self._shard.admit(trainer)
        self._telemetry.name_row(1 + trainer, f"trainer {trainer}")
        self._telemetry.log.info("trainer connected", trainer=trainer)
        try:
            yield from self._steps(trainer, caller, key, messages, ended)
        finally:
            self._telemetry.log.info("trainer disconnected", trainer=trainer)

    def _steps(
        self,
        trainer: int,
        caller: Caller,
        key: tuple[str, ...],
        messages: Iterator[bytes],
        ended: Callable[[], bool],
    ) -> Iterator[bytes]:
        greeting = json.dumps({"snapshot": self._shard.snapshot_step})
        yield text_frame(Kind.HELLO, trainer, self._shard.step, greeting)
        began = 0
        for message in messages:
            began = began or self._telemetry.now()
            frame = self._checked(trainer, message)
            self._members.expect_owner(trainer, caller)
            self._shard.receive(frame)
            if not frame.ends:
                continue
            began = self._traced("receive gradients", began, frame, gradient_arrow)
            if self._shard.wait(frame.step, ended):
                # The arrow begins before anything is sent: the stream may end with the last byte.
                began = self._traced("wait for the step", began, frame, parameter_arrow)
                yield from self._version(key)
                self._telemetry.span("send parameters", 1 + trainer, began, frame.step)
                began = 0
            elif self._shard.failure:
                yield text_frame(Kind.FAILED, trainer, frame.step, self._shard.failure)
                return
            else:
                return

    def _traced(
        self, name: str, start: int, frame: Frame, arrow: Callable[[int, int, str], str]
    ) -> int:
        """Record a span of a trainer with the arrow that ends or begins in it; returns its end."""
        if self._telemetry.trace is None:
            return 0
        which = arrow(frame.step, frame.trainer, self._shard.service.endpoint)
        flow = {"ends" if arrow is gradient_arrow else "begins": which}
        return self._telemetry.span(name, 1 + frame.trainer, start, frame.step, **flow)

    def _checked(self, trainer: int, message: bytes) -> Frame:
        frame = read_frame(message)
        self._traffic.received += len(message)
        self._traffic.messages += 1
        if frame.trainer != trainer or frame.kind not in (
            Kind.GRADIENT,
            Kind.ROWS,
            Kind.BARRIER,
        ):
            raise WireError(f"trainer {trainer} sent {frame.kind.name} of trainer {frame.trainer}")
        return frame

    def _version(self, key: tuple[str, ...]) -> Iterator[bytes]:
        for message in self._shard.version.messages[key]:
            self._traffic.sent += len(message)
            yield message


def _wanted(hello: Frame) -> list[str]:
    """The variables that a trainer subscribes to. Raises WireError for a malformed message."""
    return names_field(read_header(hello.data.tobytes()), "names")
