"""Who makes a call: the metadata that identify a process of a job, sent beside the token."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from compiler.support.dataclass import dataclass

SESSION_KEY = "x-fluid-session"
"""The key of the session in a call's metadata."""
TRAINER_KEY = "x-fluid-trainer"
"""The key of the trainer's id in a call's metadata."""
MAX_SESSION = 64
"""Maximum number of characters of a session."""

Metadata = Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Caller:
    """A process of a job. `session` is a random name that only this process knows.

    `trainer` is the id that the process takes part as; None for servers and tools.
    """

    session: str
    trainer: int | None = None

    @staticmethod
    def new(trainer: int | None = None) -> Caller:
        """A caller with a session of its own."""
        return Caller(uuid4().hex, trainer)

    def __str__(self) -> str:
        return "server" if self.trainer is None else f"trainer {self.trainer}"

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata that this process sends with every call."""
        session = ((SESSION_KEY, self.session),)
        return session if self.trainer is None else (*session, (TRAINER_KEY, str(self.trainer)))


def session_of(metadata: Metadata) -> str:
    """The session in a call's metadata; empty if there is none that is valid."""
    session = _text(metadata, SESSION_KEY)
    return session if len(session) <= MAX_SESSION else ""


def caller_of(metadata: Metadata, connection: str) -> Caller:
    """The caller of a call; without a session in the metadata, its connection is the session."""
    pairs = list(metadata)
    trainer = _text(pairs, TRAINER_KEY)
    number = (
        int(trainer) if trainer.isascii() and trainer.isdecimal() and len(trainer) < 9 else None
    )
    return Caller(session_of(pairs) or f"connection {connection}", number)


def _text(metadata: Metadata, key: str) -> str:
    values = [value for name, value in metadata if name == key]
    return values[0] if values and isinstance(values[0], str) else ""
