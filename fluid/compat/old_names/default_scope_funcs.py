"""A stack of scopes for each thread, and functions on its last one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from runtime.tensors.scope import Scope, Variable

__all__ = [
    "enter_local_scope",
    "find_var",
    "get_cur_scope",
    "leave_local_scope",
    "scoped_function",
    "var",
]


class _Stack(threading.local):
    """The scopes of a thread, from the outermost one."""

    def __init__(self) -> None:
        self.scopes = [Scope()]


_STACK = _Stack()


def get_cur_scope() -> Scope:
    """The innermost scope of this thread."""
    return _STACK.scopes[-1]


def enter_local_scope() -> None:
    """Make a new scope inside the current one, and make it current."""
    _STACK.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Drop the current scope; RuntimeError where `enter_local_scope` was not called before."""
    if len(_STACK.scopes) == 1:
        raise RuntimeError("leave_local_scope without enter_local_scope")
    _STACK.scopes.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> Variable:
    """The variable of a name in the current scope, made where there is none."""
    return get_cur_scope().var(name)


def find_var(name: str) -> Variable | None:
    """The variable of a name in the current scope or around it; None where there is none."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], object]) -> None:
    """Call a function within a new local scope."""
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
