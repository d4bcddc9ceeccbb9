"""What switches dygraph mode on and asks for it: it is never on here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from fluid.compatibility.installed import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    in_dygraph_mode,
)

__all__ = [
    "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative", "enabled",
    "guard", "no_grad", "to_variable",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

enabled = in_dygraph_mode


@contextmanager
def guard(place: Any = None) -> Iterator[None]:
    """Raises RuntimeError: ops are recorded in programs here, never run at once."""
    enable_dygraph(place)
    yield


def to_variable(
    value: Any, block: Any = None, name: str | None = None, zero_copy: Any = None
) -> NoReturn:
    """Raises AssertionError, as the reference where dygraph mode is off."""
    raise AssertionError(
        "'to_variable' is of dygraph mode, which there is not here: feed arrays to Executor.run, "
        "or make a constant by layers.assign"
    )


def no_grad(func: F) -> F:
    """The function itself: what it records has gradients as `stop_gradient` says."""
    return func
