"""The user's line of a recorded op, found quickly and formatted only when a trace is compiled."""

from __future__ import annotations

import sys
from types import CodeType
from typing import TypeAlias

from fluid.recording.op_records import is_ours, shown_line

__all__ = ["Source", "source_text", "user_source"]

Source: TypeAlias = "tuple[CodeType, int] | None"

_ours: dict[CodeType, bool] = {}


def user_source(depth: int = 1) -> Source:
    """The code and line of the nearest caller outside our packages; None without one."""
    frame = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage] - inspect is slower
    while frame is not None:
        code = frame.f_code
        ours = _ours.get(code)
        if ours is None:
            ours = _ours[code] = is_ours(code.co_filename)
        if not ours:
            return code, frame.f_lineno
        frame = frame.f_back
    return None


def source_text(source: Source) -> str:
    """`file:line` of a source; empty for None.

    >>> source_text(None)
    ''
    """
    if source is None:
        return ""
    code, line = source
    return shown_line(code.co_filename, line)
