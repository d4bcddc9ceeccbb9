"""Syntax trees of Python source, for one thread at a time.

CPython 3.11 counts the depth of a tree that it builds in a variable of the process. Of two threads
that build trees at once, one may fail with RecursionError or SystemError. A lock keeps our threads
apart; where another library parses meanwhile, as `numpy.load` does, parsing is tried again.
"""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from threading import Lock
from typing import Literal, overload

_ATTEMPTS = 10
"""Attempts to parse one source before its error is believed."""


class _Guard:
    """The lock of the threads of this process; a child of a fork has one of its own."""

    lock = Lock()

    @classmethod
    def renew(cls) -> None:
        """Replace the lock, which another thread may have held during a fork."""
        cls.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Guard.renew)


@overload
def syntax_tree(source: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def syntax_tree(source: str, mode: Literal["eval"]) -> ast.Expression: ...
def syntax_tree(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """The syntax tree of a source, or of an expression.

    Raises SyntaxError, ValueError for null bytes, and RecursionError or MemoryError for expressions
    that are nested too deeply.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(SystemError, RecursionError), _Guard.lock:
            return ast.parse(source, mode=mode)
    with _Guard.lock:
        return ast.parse(source, mode=mode)
