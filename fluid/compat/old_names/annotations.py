"""A decorator for functions that have a successor."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["deprecated"]

Function = Callable[..., Any]


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[[Function], Function]:
    """Warn at each call that a function is deprecated since a version, and what to call instead."""

    def decorate(func: Function) -> Function:
        text = f"API {func.__name__} is deprecated since {since}. Please use {instead} instead."
        message = f"{text}\n{extra_message}" if extra_message else text

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return func(*args, **kwargs)

        call.__doc__ = f"\n    Warning: {message}\n{func.__doc__ or ''}"
        return call

    return decorate
