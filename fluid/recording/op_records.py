"""Conversion of an op's arguments to a record: variable names, plain values, the user's line."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import cast

from compiler.ir.program import Block, BlockRef, VarDesc
from compiler.support import tracebacks
from fluid.recording.annotations import Attributes, AttributeValue
from fluid.recording.arguments import is_numpy
from fluid.recording.narrowing import is_sequence

_GUARDS = str(contextlib.__file__)
"""The file with the frames between a `with` line and our context managers."""
_PLAIN = frozenset({bool, int, float, str})
"""The classes of most attributes, and of the items of lists."""


def slot_names(op_type: str, slots: object) -> dict[str, list[str]]:
    """The names in an op's slots, which users fill with a variable, a name, or a list of them.

    Raises TypeError naming op and slot for anything else. Slots given as None are left out.

    >>> slot_names("mul", {"X": "x", "Y": ["w"]})
    {'X': ['x'], 'Y': ['w']}
    """
    if slots is None:
        return {}
    if not isinstance(slots, Mapping):
        kind = type(slots).__name__
        raise TypeError(f"{op_type}: slots are a dict from names to variables, not {kind}")
    filled = cast(Mapping[str, object], slots).items()
    return {slot: _names(op_type, slot, value) for slot, value in filled if value is not None}


def _names(op_type: str, slot: str, value: object) -> list[str]:
    return [_name(op_type, slot, item) for item in (value if is_sequence(value) else [value])]


def _name(op_type: str, slot: str, item: object) -> str:
    if isinstance(item, VarDesc):
        return item.name
    if not isinstance(item, str):
        kind = type(item).__name__
        raise TypeError(f"{op_type}: slot {slot} takes a Variable or its name, not {kind}")
    return item


def plain(value: object) -> AttributeValue:
    """Convert an attribute to a printable value: numbers, strings, lists, block indices."""
    if value.__class__ in _PLAIN:
        return cast(AttributeValue, value)
    if isinstance(value, Block):
        return BlockRef(value.idx)
    if is_numpy(value):
        return value.tolist()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in cast(Sequence[object], value)]
    return value


def plain_values(attrs: Attributes) -> dict[str, AttributeValue]:
    """Convert the attributes of an op with `plain`; lists are copied."""
    return {name: plain(value) for name, value in attrs.items()}


@lru_cache(maxsize=1024)
def is_ours(file: str) -> bool:
    """Whether a file is in our packages or is that of context managers, not the user's."""
    return tracebacks.is_ours(file) or file == _GUARDS


def user_line() -> str:
    """`file:line` of the nearest caller outside our packages; "" without one."""
    frame = inspect.currentframe()
    while frame and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return shown_line(frame.f_code.co_filename, frame.f_lineno) if frame else ""


def shown_line(filename: str, line: int) -> str:
    """`file:line`, with the path that is shown to users."""
    here = os.getcwd()  # noqa: PTH109 - every op asks, and a Path takes longer
    return f"{_shown(filename, here)}:{line}"


@lru_cache(maxsize=256)
def _shown(filename: str, here: str) -> str:
    """Path relative to the working directory if it is below it, else the file name.

    So the text of a program does not depend on the location of its project.
    """
    if filename.startswith("<"):
        return filename
    path = Path(filename).absolute()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def must_be_bool(**arguments: object) -> None:
    """Raise AssertionError, as in the reference, naming the argument that is not a bool."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            kind = type(value).__name__
            raise AssertionError(f"The type of {name} should be bool, but received {kind}")
