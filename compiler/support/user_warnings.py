"""Warnings about something that a user did or can change, shown at the user's line."""

from __future__ import annotations

import contextlib
import inspect
import warnings

from compiler.support.tracebacks import is_ours


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is not of our packages; once for each text and line.

    Lines of the standard library that close our context managers count as ours.

    If there is none, as in a command, it is shown at the outermost line.
    """
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_back and _is_between(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def _is_between(file: str) -> bool:
    return is_ours(file) or file == contextlib.__file__
