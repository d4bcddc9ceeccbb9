"""The only import of torch.distributed: torch is imported when the first ring is created."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any

from compiler.support.extras import install, missing
from runtime.errors import CollectiveError


@cache
def torch_module() -> Any:
    """Import torch. Raises CollectiveError if it is not installed."""
    if "torch" in missing("dist"):
        raise CollectiveError(
            "collective operations need torch, which cannot be imported",
            hint=install("dist"),
        )
    return import_module("torch")


def loaded_torch() -> Any:
    """The module torch, or None if nothing has imported it yet."""
    return sys.modules.get("torch")


@cache
def distributed() -> Any:
    """Import torch.distributed. Raises CollectiveError if torch is built without it."""
    torch_module()
    module = import_module("torch.distributed")
    if not module.is_available():
        raise CollectiveError("this build of torch has no torch.distributed")
    return module


def seconds(number: float) -> timedelta:
    """Convert seconds to the type that torch.distributed takes."""
    return timedelta(seconds=number)
