"""What goes wrong while running, beside what `compiler.errors` already says.

Each is a ValueError of the same form: one sentence, then the op, the user's line and a hint. Some
are also of the kind that the reference raises, so that scripts that catch it go on working.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compiler.errors import CompileError, ShapeError
from compiler.escape import printable_lines


class FeedError(CompileError):
    """What is fed is not what the program takes: a name is missing, or its type is another."""


class NotInitialized(CompileError, RuntimeError):
    """State that a step reads does not exist yet: the startup program has not run here."""


class LodError(CompileError, AssertionError):
    """Sequence lengths or offsets do not describe the data they were given for."""


class StepError(CompileError):
    """An op cannot compute from the values that came to it in a step."""


class CheckpointError(ValueError):
    """A tensor cannot be read or written; names the file and byte, the expected and the given.

    What is not printable in the message is escaped: names come from files.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable_lines(message))


class FileAccessError(CompileError):
    """An op of a program must not read or write the file that it names, or cannot."""


class TooLarge(CompileError, MemoryError):
    """A value would take more memory than there is."""


class MemoryLimitExceeded(TooLarge):
    """A step would take more memory than its limit allows; nothing of it was taken."""


class PlaceError(CompileError, RuntimeError):
    """A device cannot do what it was asked for."""


class WireError(CompileError, RuntimeError):
    """A parameter server or a trainer cannot be reached, or sends what it must not."""


class CollectiveError(CompileError, RuntimeError):
    """A collective operation between ranks cannot be done, or did not finish."""


class RendezvousError(CollectiveError):
    """The ranks of a group did not find each other: an endpoint, a port or a rank is wrong."""


class ScheduleError(CollectiveError):
    """Ranks do not issue the same collectives: a name, type, shape or the order differs."""


class RankError(CollectiveError):
    """Another rank ended, stopped or stalled.

    `rank`, `host` and `pid` name its process, `step` the step it was in, `last` the last collective
    it issued, and `cause` what happened to it.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int,
        host: str = "",
        pid: int = 0,
        step: int = 0,
        last: str = "",
        cause: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.rank = rank
        self.host = host
        self.pid = pid
        self.step = step
        self.last = last
        self.cause = cause


class WorkerError(RankError):
    """A step of a worker process raised an error; `kind` is its type, `trace` its traceback."""

    def __init__(self, message: str, *, kind: str, trace: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.kind = kind
        self.trace = trace


def missing_feed(
    needed: Iterable[tuple[str, str, Sequence[object]]],
    *,
    op: str = "",
    source: str = "",
    hint: str = "",
) -> FeedError:
    """Feeds that are not there: name, element type and shape of each, and the op that reads one.

    >>> print(missing_feed([("x", "float32", (-1, 13)), ("y", "int64", (-1, 1))]))
    missing feed: 'x' (float32 of shape (-1, 13)), 'y' (int64 of shape (-1, 1))
    """
    texts = [f"{name!r} ({dtype} of shape {tuple(shape)})" for name, dtype, shape in needed]
    return FeedError(f"missing feed: {', '.join(texts)}", op=op, source=source, hint=hint)


def wrong_shape(
    name: str, expected: Sequence[object], given: Sequence[int], hint: str = ""
) -> ShapeError:
    """A feed whose sizes do not fit; sizes that may be any are -1 or a name.

    >>> print(wrong_shape("x", (-1, 13), (4, 12)))
    feed 'x' must have the shape (-1, 13), but (4, 12) was given
    """
    text = f"feed {name!r} must have the shape {tuple(expected)}, but {tuple(given)} was given"
    return ShapeError(text, hint=hint)


def wrong_dtype(name: str, expected: str, given: str) -> FeedError:
    """A feed of another element type: nothing is converted silently.

    >>> print(wrong_dtype("x", "float32", "float64"))
    feed 'x' must be float32, but float64 was given
      hint: feed x.astype('float32')
    """
    text = f"feed {name!r} must be {expected}, but {given} was given"
    return FeedError(text, hint=f"feed {name}.astype({expected!r})")
