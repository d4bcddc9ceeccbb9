"""What is loaded when an op is first looked up: the modules that register ops.

A process that only runs modules, as a worker of a pool does, never imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TypeVar

T = TypeVar("T")
_LATER: list[Callable[[], object]] = []
_FILLING = RLock()


def fill_later(fill: Callable[[], object]) -> None:
    """Call `fill`, which registers ops, when one that is not known is first looked up."""
    _LATER.append(fill)


def filled(registry: T) -> T:
    """The registry, once what was put off is in it; another thread waits until that is done."""
    with _FILLING:
        while _LATER:
            fill = _LATER.pop()
            try:
                fill()
            except BaseException:
                _LATER.append(fill)
                raise
    return registry
