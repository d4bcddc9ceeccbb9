"""Tracebacks of errors that reach users: their own frames, without those of our packages.

A public function calls `hide_frames` in its `except Exception` and re-raises without naming the
error: Python then takes the traceback from the error and adds no frame. A debugger finds all frames
by `unfiltered`; with `FLUID_TRACEBACK=full` nothing is hidden. Pickles omit tracebacks.
"""

from __future__ import annotations

import dis
import inspect
import os
import sysconfig
from collections.abc import Callable, Generator
from functools import wraps
from pathlib import Path
from textwrap import shorten
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar, cast

from compiler.support.settings.fluid import FLUID_TRACEBACK

__all__ = [
    "entry_point",
    "first_lines",
    "hide_frames",
    "is_ours",
    "last_line",
    "passes_arguments",
    "unfiltered",
]

F = TypeVar("F", bound=Callable[..., Any])

_ROOT = str(Path(__file__).parents[2]) + os.sep
_OURS = tuple(f"{_ROOT}{name}{os.sep}" for name in ("compiler", "runtime", "fluid", "fleet"))
_DEMO = str(Path(_ROOT, "fluid", "demo")) + os.sep
"""The demo is a user's program, and its frames are shown as a user's."""
_GENERATED = "<module "
_STANDARD = (sysconfig.get_path("stdlib") + os.sep, str(Path(os.__file__).parent) + os.sep)
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_CALLED = ("numpy", "torch", "triton", "networkx", "google", "grpc", "ml_dtypes")
"""Libraries that our packages call."""
_NOT_OURS = (OSError, MemoryError, ImportError, StopIteration)
"""Errors of files, memory and imports: libraries raise them, and their messages need no hint."""

_KEPT = "__fluid_unfiltered__"
_passing: set[CodeType] = set()


class _Unfiltered:
    """The original traceback of an error, and the filtered one in its `__traceback__`."""

    def __init__(self, traceback: TracebackType | None, shown: TracebackType | None) -> None:
        self.traceback = traceback
        self.shown = shown

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as None: frames cannot be pickled."""
        return type(None), ()


def entry_point(function: F) -> F:
    """Decorate a function or generator function so that its errors show only the user's frames."""
    if inspect.isgeneratorfunction(function):
        return cast(F, _hiding_generator(function))

    @passes_arguments
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return cast(F, call)


def _hiding_generator(function: Callable[..., Generator[Any]]) -> Callable[..., Generator[Any]]:
    @passes_arguments
    @wraps(function)
    def items(*args: Any, **kwargs: Any) -> Generator[Any]:
        try:
            yield from function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return items


def passes_arguments(wrapper: F) -> F:
    """Mark a wrapper that forwards its arguments: a TypeError of the call itself is the user's."""
    _passing.add(wrapper.__code__)
    return wrapper


def hide_frames(error: BaseException) -> None:
    """Hide the frames of our packages in an error's traceback, where a user called us.

    Public functions call it in their `except` clause, before a bare `raise`. A caller in our
    packages is not a user: nothing is hidden before the outermost one.
    """
    if FLUID_TRACEBACK.text() == "full" or _is_called_by_ours():
        return
    hint = _hint(error)
    _hide_chain(error, {id(error)})
    _hide(error)
    if hint and hint not in getattr(error, "__notes__", ()):
        error.add_note(hint)


def _is_called_by_ours() -> bool:
    """Whether the function that hides frames was called by a function of our packages."""
    frame = inspect.currentframe()
    for _ in range(3):
        frame = frame and frame.f_back
    return frame is not None and is_ours(frame.f_code.co_filename)


def unfiltered(error: BaseException) -> TracebackType | None:
    """Return the full traceback of an error, for `pdb.post_mortem`."""
    record: object = error.__dict__.get(_KEPT)
    if not isinstance(record, _Unfiltered):
        return error.__traceback__
    nodes: list[TracebackType] = []
    node = error.__traceback__
    while node is not None and node is not record.shown:
        nodes.append(node)
        node = node.tb_next
    return _chain_frames(nodes, record.traceback)


def is_ours(file: str) -> bool:
    """Whether a file belongs to our packages, or is the name of a generated module."""
    return file.startswith((*_OURS, _GENERATED)) and not file.startswith(_DEMO)


# ---- which frames are the user's


def _hide(error: BaseException) -> None:
    """Keep only the user's frames in an error; the others remain reachable by `unfiltered`."""
    every, nodes = unfiltered(error), _user_frames(error.__traceback__)
    shown = _chain_frames(nodes, None)
    error.__dict__[_KEPT] = _Unfiltered(every, shown)
    error.with_traceback(shown)


def _user_frames(traceback: TracebackType | None) -> list[TracebackType]:
    """Return the nodes of frames that are neither ours nor of a library that ours called."""
    nodes: list[TracebackType] = []
    inside, node = False, traceback
    while node is not None:
        inside = _is_inside(node.tb_frame, inside)
        nodes += [] if inside else [node]
        node = node.tb_next
    return nodes


def _is_inside(frame: FrameType, inside: bool) -> bool:
    """Whether a frame is ours, or of a library called from inside ours."""
    file = frame.f_code.co_filename
    if is_ours(file):
        return True
    if not inside or file.startswith("<frozen "):
        return inside
    if file.startswith("<"):  # methods that dataclasses make have the names of their module
        return is_ours(str(frame.f_globals.get("__file__", "")))
    installed = next((folder for folder in _INSTALLED if file.startswith(folder)), None)
    if installed is not None:
        return Path(file.removeprefix(installed)).parts[0].removesuffix(".py") in _CALLED
    return file.startswith(_STANDARD)


def _chain_frames(nodes: list[TracebackType], rest: TracebackType | None) -> TracebackType | None:
    """Return a traceback of these nodes, followed by another one."""
    for node in reversed(nodes):
        rest = TracebackType(rest, node.tb_frame, node.tb_lasti, node.tb_lineno)
    return rest


# ---- errors behind an error


def _hide_chain(error: BaseException, seen: set[int]) -> None:
    """Suppress a chained error in which no frame is the user's.

    It remains the `__context__`. In other chained errors only frames are hidden.
    """
    behind = _chained(error)
    if behind is None or id(behind) in seen:
        return
    _hide_chain(behind, seen | {id(behind)})
    is_internal = behind.__traceback__ is not None and not _user_frames(behind.__traceback__)
    if is_internal and _chained(behind) is None:
        BaseException.__setattr__(error, "__context__", behind)
        BaseException.__setattr__(error, "__cause__", None)  # also suppresses the context
    else:
        _hide(behind)


def _chained(error: BaseException) -> BaseException | None:
    """Return the chained error that a traceback shows before this one."""
    hidden = error.__suppress_context__
    return error.__cause__ or (None if hidden else error.__context__)


# ---- errors that are bugs


def _hint(error: BaseException) -> str:
    """Return a hint with the position of an internal error or cause, and how to show all frames."""
    behind = _chained(error)
    if _is_internal(error):
        text = f"raised in {_location(error)}"
    elif behind is not None and _is_internal(behind) and not _tells(error, behind):
        reason = shorten(str(behind), 200, placeholder=" …")
        text = f"caused by {type(behind).__name__}: {reason} in {_location(behind)}"
    else:
        return ""
    return f"  hint: {text}; set FLUID_TRACEBACK=full to see every frame"


def _tells(error: BaseException, behind: BaseException) -> bool:
    """Whether an error of ours has what its cause says, or a hint that says what to do."""
    return str(behind) in str(error) or bool(getattr(error, "hint", ""))


def _is_internal(error: BaseException) -> bool:
    """Whether an error came from inside our packages, other than by a `raise` statement there."""
    traceback = unfiltered(error)
    if isinstance(error, SyntaxError) and not is_ours(error.filename or _GENERATED):
        return False
    if traceback is None or isinstance(error, _NOT_OURS) or not _ends_inside(traceback):
        return False
    last = _last(traceback)
    if isinstance(error, TypeError) and last.tb_frame.f_code in _passing:
        return False
    return not (is_ours(last.tb_frame.f_code.co_filename) and _is_raised(last))


def _ends_inside(traceback: TracebackType) -> bool:
    users = _user_frames(traceback)
    return not users or users[-1] is not _last(traceback)


def _last(traceback: TracebackType) -> TracebackType:
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def _is_raised(node: TracebackType) -> bool:
    """Whether a frame is at a `raise` statement other than that of an `assert`."""
    before = ""
    for instruction in dis.get_instructions(node.tb_frame.f_code):
        if instruction.offset == node.tb_lasti:
            return instruction.opname in ("RAISE_VARARGS", "RERAISE") and before != "assert"
        if instruction.opname in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"):
            before = "assert"
        elif instruction.opname == "RAISE_VARARGS":
            before = ""
    return False


def _location(error: BaseException) -> str:
    """Return the innermost file and line of our packages in an error's traceback."""
    locations = [
        f"{_shown(frame.f_code.co_filename)}:{line}"
        for frame, line in walk_tb(unfiltered(error))
        if is_ours(frame.f_code.co_filename)
    ]
    return locations[-1]


# ---- errors of other processes, in a few lines


def last_line(error: BaseException) -> str:
    """`file:line` where an error was raised: the user's innermost line, or else the innermost one.

    Empty for an error that was never raised.
    """
    nodes = _user_frames(unfiltered(error))
    frames = [(node.tb_frame, node.tb_lineno) for node in nodes] or [*walk_tb(unfiltered(error))]
    if not frames:
        return ""
    frame, line = frames[-1]
    return f"{_shown(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}"


MOST_LINES = 5
"""Lines of the message of another process's error that are shown."""


def first_lines(text: str) -> str:
    """A text without the lines after the first `MOST_LINES`, and dots in their place.

    >>> first_lines("a"), first_lines(chr(10).join("abcdef"))[-3:]
    ('a', 'e …')
    """
    lines = text.splitlines()
    return "\n".join(lines[:MOST_LINES]) + (" …" if len(lines) > MOST_LINES else "")


def _shown(file: str) -> str:
    """A path without the folder of our packages, or without the current one."""
    if file.startswith(_ROOT):
        return Path(file.removeprefix(_ROOT)).as_posix()
    here = str(Path.cwd()) + os.sep
    return file.removeprefix(here)
