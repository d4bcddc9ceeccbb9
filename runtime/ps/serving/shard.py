"""One server's part of a synchronous job.

Gradients arrive in messages, in any order and possibly twice. When the last one of a step is in,
the compiled program of the server's blocks runs once, and the new parameters are copied into
messages that are never overwritten: they are the version that trainers see. A step is applied
exactly once, however often its messages are sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.errors import WireError
from runtime.ps.service import Service
from runtime.ps.serving.inbox import Inbox
from runtime.ps.telemetry.logs import RoleLog
from runtime.ps.telemetry.role import Telemetry
from runtime.ps.wire.frames import Frame, Kind, new_frame
from runtime.ps.wire.layout import BlockPiece, ShardLayout, make_layout

UPDATES = 0
"""The row of a trace with the updates."""
MAX_LAG = (1 << 16) - 1
"""Maximum number of steps since the last snapshot that a message can encode."""


@dataclass(frozen=True)
class Version:
    """The parameters after a step: one message per chunk, for each subscription."""

    step: int
    messages: Mapping[tuple[str, ...], tuple[bytes, ...]]


class Shard:
    """The state machine of synchronous steps. `step` is that of the current variables.

    `after_step` is called with the lock held, after a step was applied.
    """

    def __init__(
        self,
        service: Service,
        step: int = 0,
        after_step: Callable[[int], None] = lambda _: None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.service = service
        self.changed = Condition()
        self.expected = set(range(service.trainers))
        self.failure = ""
        self.waiting_since: float | None = None
        self.snapshot_step = step
        self.takes_snapshots = False
        self._after_step = after_step
        self._telemetry = telemetry or Telemetry(RoleLog("server", service.number, lambda: step))
        self._inboxes = [Inbox(service.gradients_of(t)) for t in range(service.trainers)]
        self._layouts: dict[tuple[str, ...], ShardLayout] = {}
        self._subscribers: Counter[tuple[str, ...]] = Counter()
        self._pieces: dict[tuple[str, ...], dict[str, list[BlockPiece]]] = {}
        self.version = Version(step, {})
        self.previous = self.version

    @property
    def step(self) -> int:
        """The last step that was applied."""
        return self.version.step

    @contextmanager
    def subscribed(self, names: Sequence[str]) -> Generator[tuple[str, ...]]:
        """Publish messages with these variables in each version; yields the key of the messages.

        They are published until the last block with these names ends. Raises WireError for a
        variable that is not stored here, and for one that occurs twice.
        """
        key = tuple(names)
        with self.changed:
            self._publish(key)
        try:
            yield key
        finally:
            with self.changed:
                self._withdraw(key)

    def _publish(self, key: tuple[str, ...]) -> None:
        if key not in self._layouts:
            layout = make_layout(_described(self.service, name) for name in key)
            self._pieces[key] = {block.name: layout.pieces(block) for block in layout.blocks}
            self._layouts[key] = layout
            step, messages = self.version.step, self.version.messages
            message = self._messages(key, step, self._lag(step))
            self.version = Version(step, {**messages, key: message})
        self._subscribers[key] += 1

    def _withdraw(self, key: tuple[str, ...]) -> None:
        self._subscribers[key] -= 1
        if self._subscribers[key]:
            return
        del self._subscribers[key], self._layouts[key], self._pieces[key]
        self.version, self.previous = (
            Version(version.step, {k: m for k, m in version.messages.items() if k != key})
            for version in (self.version, self.previous)
        )

    def layout(self, key: tuple[str, ...]) -> ShardLayout:
        """The layout of variables in the messages of a subscription."""
        return self._layouts[key]

    def receive(self, frame: Frame) -> None:
        """Store a message of a trainer's gradients; the one that completes a step applies it.

        A message of a step that was already applied is ignored. Raises WireError for a message that
        does not fit the layout, and for one of a step after the next.
        """
        if not 0 <= frame.trainer < self.service.trainers:
            raise WireError(
                f"trainer {frame.trainer} sent a message: there are {self.service.trainers}"
            )
        with self.changed:
            if frame.step <= self.version.step:
                return
            if frame.step > self.version.step + 1:
                raise WireError(
                    f"trainer {frame.trainer} sent step {frame.step}, but the last step here is "
                    f"{self.version.step}"
                )
            self._inboxes[frame.trainer].take(frame)
            self.waiting_since = self.waiting_since or time.monotonic()
            self._apply_if_complete()

    def drop(self, trainer: int) -> None:
        """Stop waiting for a trainer: its messages of an unfinished step are discarded.

        The step of the others is applied if only this trainer's gradients were missing.
        """
        with self.changed:
            self.expected.discard(trainer)
            if not self._inboxes[trainer].is_complete:
                self._inboxes[trainer].clear()
            self._apply_if_complete()
            self.changed.notify_all()

    def admit(self, trainer: int) -> None:
        """Wait for a trainer again, from the next step on."""
        with self.changed:
            self.expected.add(trainer)

    def fail(self, why: str) -> None:
        """Raise an error in every waiting trainer; the first reason is kept."""
        with self.changed:
            self.failure = self.failure or why
            self.changed.notify_all()

    def wait(self, step: int, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a step; False if `until` becomes true first, on failure or on timeout."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.version.step >= step or bool(self.failure) or until(), seconds
            )
            return self.version.step >= step

    def late_trainers(self) -> list[int]:
        """The trainers whose gradients are missing for the next step."""
        with self.changed:
            return sorted(t for t in self.expected if not self._inboxes[t].is_complete)

    def _apply_if_complete(self) -> None:
        """Run the update and publish the next version; the lock is held."""
        ready = [t for t, inbox in enumerate(self._inboxes) if inbox.is_complete]
        if self.failure or not ready or not self.expected.issubset(ready):
            return
        if not any(not inbox.is_empty for inbox in self._inboxes):
            return
        step, started = self.version.step + 1, self._telemetry.now()
        try:
            self._update(len(self._inboxes) / len(ready))
        except Exception as error:
            self.failure = f"step {step} failed on {self.service.endpoint}: {error}"
            self.changed.notify_all()
            raise
        self.waiting_since = None
        updated = self._telemetry.span("update", UPDATES, started, step)
        self.previous, self.version = self.version, self._read(step)
        self._telemetry.span("copy parameters", UPDATES, updated, step)
        self._after_step(step)
        self.changed.notify_all()

    def _update(self, factor: float) -> None:
        """Run the update on the gradients of all; the mean is over the trainers that sent."""
        feeds: dict[str, Array] = {}
        for inbox in self._inboxes:
            feeds |= inbox.feeds(factor)
        self.service.update(feeds, 0)
        for inbox in self._inboxes:
            inbox.clear()

    def _read(self, step: int) -> Version:
        """Copy the variables of every subscription into messages."""
        lag = self._lag(step)
        return Version(step, {key: self._messages(key, step, lag) for key in self._layouts})

    def _lag(self, step: int) -> int:
        """The number of steps since the last snapshot, as messages encode it."""
        return min(step - self.snapshot_step, MAX_LAG) if self.takes_snapshots else 0

    def _messages(self, key: tuple[str, ...], step: int, lag: int) -> tuple[bytes, ...]:
        layout, variables = self._layouts[key], self.service.variables()
        messages = [
            new_frame(Kind.PARAMETER, lag, step, start, stop - start)
            for start, stop in layout.chunks
        ]
        for name, pieces in self._pieces[key].items():
            values = np.ascontiguousarray(variables[name]).reshape(-1).view(np.uint8)
            for piece in pieces:
                messages[piece.chunk][1][piece.there] = values[piece.here]
        return tuple(message for message, _ in messages)


def _described(service: Service, name: str) -> tuple[str, str, tuple[int, ...]]:
    """Name, dtype and shape of a variable; WireError if it is not stored here."""
    variable = service.variables().get(name)
    if variable is None:
        raise WireError(f"variable {name[:200]!r} is not on server {service.endpoint}")
    return name, str(variable.dtype), variable.shape
