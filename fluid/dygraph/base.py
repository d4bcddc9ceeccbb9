"""Functions that enable and query dygraph mode, which is never enabled here."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from fluid.compat.installed import (
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

F = TypeVar("F", bound=Callable[..., object])

enabled = in_dygraph_mode


@contextmanager
def guard(place: object = None) -> Generator[None]:
    """Raise RuntimeError: dygraph mode is not supported."""
    enable_dygraph(place)
    yield


def to_variable(
    value: object, block: object = None, name: str | None = None, zero_copy: object = None
) -> NoReturn:
    """Raise AssertionError, as the reference does outside dygraph mode."""
    raise AssertionError(
        "'to_variable' requires dygraph mode, which is not supported: feed arrays to Executor.run, "
        "or create a constant by layers.assign"
    )


def no_grad(func: F) -> F:
    """Return the function unchanged: gradients are controlled by `stop_gradient`."""
    return func
