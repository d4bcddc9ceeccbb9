"""Run-time errors, in addition to those of `compiler.errors`.

Each is a ValueError of the same form: one sentence, then the op, the user's line and a hint. Some
also derive from the type that the reference raises, so that scripts that catch it keep working.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compiler.errors import CompileError, ShapeError
from compiler.support.escape import printable_lines


class FeedError(CompileError):
    """The feed does not match the program: a name is missing, or its type differs."""


class NotInitialized(CompileError, RuntimeError):
    """State that a step reads does not exist yet: the startup program has not run here."""


class StateMismatch(ShapeError):
    """State of a scope has another dtype or shape than the step was compiled for."""


class LodError(CompileError, AssertionError):
    """Sequence lengths or offsets do not match the data."""


class StepError(CompileError):
    """An op cannot compute its outputs from its inputs in a step."""


class OutOfBounds(StepError):
    """A native kernel reads or writes outside of an array; only kernels that check bounds raise."""


class CheckpointError(ValueError):
    """A tensor cannot be read or written; names the file and byte, expected and actual values.

    Unprintable characters in the message are escaped: names come from files.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable_lines(message))


class OtherModel(CheckpointError, RuntimeError):
    """Saved tensors do not fit the variables; a RuntimeError, as in release 1.8."""


class NotInFile(LookupError, AssertionError):
    """A file has no value for a variable; an AssertionError too, as in release 1.8."""


class MissingTensorFile(FileNotFoundError, RuntimeError):
    """There is no file of a saved variable; a RuntimeError too, as in release 1.8."""


class FileAccessError(CompileError):
    """An op of a program may not, or cannot, read or write the file that it names."""


class TooLarge(CompileError, MemoryError):
    """A value would take more memory than is available."""


class MemoryLimitExceeded(TooLarge):
    """A step would take more memory than its limit allows; nothing was allocated."""


class PlaceError(CompileError, RuntimeError):
    """A device does not support the request."""


class WireError(CompileError, RuntimeError):
    """A parameter server or a trainer cannot be reached, or sends an invalid message."""


class TryAgain(WireError):
    """A call to a parameter server that is refused now, and may succeed later."""


class CollectiveError(CompileError, RuntimeError):
    """A collective operation between ranks failed or did not finish."""


class RendezvousError(CollectiveError):
    """The ranks of a group did not find each other: an endpoint, a port or a rank is wrong."""


class StoreLost(RendezvousError):
    """The connection to the store ended during a rendezvous."""


class ScheduleError(CollectiveError):
    """Ranks issue different collectives: a name, type, shape or the order differs."""


class RankError(CollectiveError):
    """Another rank ended, stopped or stalled.

    `rank`, `host` and `pid` identify its process, `step` its step, `last` the last collective it
    issued, and `cause` the reason.
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
        op: str = "",
        source: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, op=op, source=source, hint=hint)
        self.rank = rank
        self.host = host
        self.pid = pid
        self.step = step
        self.last = last
        self.cause = cause


class WorkerError(RankError):
    """A step of a worker process raised an error; `kind` is its type, `trace` its traceback, which
    the message leaves out.
    """

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
    """Build the error for missing feeds: name, dtype and shape of each, and an op that reads one.

    >>> print(missing_feed([("x", "float32", (-1, 13)), ("y", "int64", (-1, 1))]))
    missing feed: 'x' (float32 of shape (-1, 13)), 'y' (int64 of shape (-1, 1))
    """
    texts = [f"{name!r} ({dtype} of shape {tuple(shape)})" for name, dtype, shape in needed]
    return FeedError(f"missing feed: {', '.join(texts)}", op=op, source=source, hint=hint)


def wrong_shape(
    name: str, expected: Sequence[object], given: Sequence[int], hint: str = ""
) -> ShapeError:
    """Build the error for a feed of the wrong shape; dynamic dims are -1 or a name.

    >>> print(wrong_shape("x", (-1, 13), (4, 12)))
    feed 'x' must have the shape (-1, 13), but (4, 12) was given
    """
    text = f"feed {name!r} must have the shape {tuple(expected)}, but {tuple(given)} was given"
    row = [size for size in expected[1:] if isinstance(size, int)]
    if not hint and len(expected) == len(given) + 1 and row == [*given]:
        hint = f"feed {name}[None], a batch of one"
    return ShapeError(text, hint=hint)


def wrong_dtype(name: str, expected: str, given: str) -> FeedError:
    """Build the error for a feed of the wrong dtype: nothing is converted silently.

    >>> print(wrong_dtype("x", "float32", "float64"))
    feed 'x' must be float32, but float64 was given
      hint: feed x.astype('float32')
    """
    text = f"feed {name!r} must be {expected}, but {given} was given"
    return FeedError(text, hint=f"feed {name}.astype({expected!r})")


def wrong_fed_shape(name: str, expected: Sequence[object], given: Sequence[int]) -> ShapeError:
    """Build the error for a feed of `fluid.data`, with the text that scripts of Paddle compare.

    >>> str(wrong_fed_shape("x", (-1, 3), (4, 2))).partition(", but ")[2]
    'received fed shape [4, 2] on each device'
    """
    return ShapeError(
        f"The fed Variable {name!r} should have dimensions = {len(expected)}, "
        f"shape = {tuple(expected)}, but received fed shape {list(given)} on each device"
    )


def wrong_fed_dtype(name: str, expected: str, given: str) -> FeedError:
    """Build the error for a feed of `fluid.data`, with the text that scripts of Paddle compare.

    >>> print(wrong_fed_dtype("y", "int64", "float64"))
    The data type of fed Variable 'y' must be 'int64', but received 'float64'
    """
    error = FeedError(
        f"The data type of fed Variable {name!r} must be {expected!r}, but received {given!r}"
    )
    error.add_note(f"  hint: feed {name}.astype({expected!r})")
    return error
