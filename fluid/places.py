"""Lists of places, as data-parallel runs and data loaders take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from fluid.flags import cpu_count
from runtime.device import CPUPlace

__all__ = ["cpu_places", "cuda_pinned_places", "cuda_places", "is_compiled_with_cuda"]


def is_compiled_with_cuda() -> bool:
    """Whether programs can run on a GPU: not in this version."""
    return False


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """As many CPU places as given, or as the environment variable `CPU_NUM` says, or one.

    >>> cpu_places(2)
    [CPUPlace(), CPUPlace()]
    """
    return [CPUPlace()] * (cpu_count() if device_count is None else device_count)


def cuda_places(device_ids: Sequence[int] | int | None = None) -> NoReturn:
    """Raises AssertionError, as the reference does where `is_compiled_with_cuda()` is false."""
    raise AssertionError("cuda_places: Not compiled with CUDA; use fluid.cpu_places()")


def cuda_pinned_places(device_count: int | None = None) -> NoReturn:
    """Raises AssertionError, as the reference does where `is_compiled_with_cuda()` is false."""
    raise AssertionError("cuda_pinned_places: Not compiled with CUDA; use fluid.cpu_places()")
