"""A decorator for functions that have a successor."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["deprecated"]

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(
    since: str, instead: str, extra_message: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Warn at each call that a function is deprecated since a version, and what to call instead."""

    def decorate(func: Callable[P, R]) -> Callable[P, R]:
        name: str = getattr(func, "__name__", "")
        text = f"API {name} is deprecated since {since}. Please use {instead} instead."
        message = f"{text}\n{extra_message}" if extra_message else text

        @functools.wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return func(*args, **kwargs)

        call.__doc__ = f"\n    Warning: {message}\n{func.__doc__ or ''}"
        return call

    return decorate
