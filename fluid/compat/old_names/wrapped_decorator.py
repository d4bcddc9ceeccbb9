"""Decorators whose results keep the signature of what they decorate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]

Function: TypeAlias = Callable[..., object]
D = TypeVar("D", bound=Function)


def wrap_decorator(decorator_func: D) -> D:
    """The decorator, with results that have the name, text and signature of the function."""

    @functools.wraps(decorator_func)
    def decorate(func: Function) -> Function:
        return functools.wraps(func)(cast(Function, decorator_func(func)))

    return cast(D, decorate)


signature_safe_contextmanager = wrap_decorator(contextmanager)
"""`contextlib.contextmanager`."""
