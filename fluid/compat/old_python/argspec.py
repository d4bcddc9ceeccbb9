"""`inspect.getargspec`, removed in Python 3.11."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ArgSpec", "getargspec"]


class ArgSpec(NamedTuple):
    """What `inspect.getargspec` returned."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[object, ...] | None


def getargspec(func: Callable[..., object]) -> ArgSpec:
    """The parameters of a function; ValueError where it has keyword-only ones.

    >>> getargspec(lambda a, b=1, *c: a)
    ArgSpec(args=['a', 'b'], varargs='c', keywords=None, defaults=(1,))
    """
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs:
        raise ValueError("getargspec: keyword-only parameters; use inspect.signature")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)
