"""Decorators whose results keep the signature of what they decorate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]

Function = Callable[..., Any]


def wrap_decorator(
    decorator_func: Callable[[Function], Function],
) -> Callable[[Function], Function]:
    """The decorator, with results that have the name, text and signature of the function."""

    @functools.wraps(decorator_func)
    def decorate(func: Function) -> Function:
        return functools.wraps(func)(decorator_func(func))

    return decorate


signature_safe_contextmanager = wrap_decorator(contextmanager)
"""`contextlib.contextmanager`."""
