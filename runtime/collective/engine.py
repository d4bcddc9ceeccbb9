"""The door of torch.distributed: torch is imported when the first ring is made, never before."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runtime.errors import CollectiveError


@cache
def torch_module() -> Any:
    """The module torch. Raises CollectiveError where it is not installed."""
    if find_spec("torch") is None:
        raise CollectiveError(
            "collective operations need torch, which cannot be imported",
            hint="install it with pip install torch",
        )
    with _without_collector():
        return import_module("torch")


@cache
def distributed() -> Any:
    """The module torch.distributed. Raises CollectiveError where torch is built without it."""
    torch_module()
    module = import_module("torch.distributed")
    if not module.is_available():
        raise CollectiveError("this build of torch has no torch.distributed")
    return module


@contextmanager
def _without_collector() -> Generator[None]:
    """Keep the garbage collector out of a large import, which makes objects but no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def seconds(number: float) -> timedelta:
    """A duration as torch.distributed takes it."""
    return timedelta(seconds=number)
