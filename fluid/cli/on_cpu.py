"""`fluid run --cpu`: replace `CUDAPlace` by `CPUPlace` for scripts that ask for GPUs."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import fluid
from fluid import core, framework
from runtime.device import CPUPlace

__all__ = ["use_cpu"]


class CUDAPlace:
    """Constructor of a `CPUPlace`, whatever the device index; nothing is an
    instance of this class.
    """

    def __new__(cls, device_id: int = 0) -> CPUPlace:
        """Return a CPUPlace."""
        print_notice_once()
        return CPUPlace()


def cuda_places(device_ids: int | Iterable[int] | None = None) -> list[CPUPlace]:
    """One `CPUPlace` per device index; one without indices."""
    numbers = [0] if device_ids is None else device_ids
    return [CUDAPlace(number) for number in ([numbers] if isinstance(numbers, int) else numbers)]


def print_notice_once() -> None:
    """Print a notice the first time."""
    if not _TOLD:
        _TOLD.append(True)
        print("fluid run --cpu: CUDAPlace is taken as CPUPlace", file=sys.stderr)


def use_cpu() -> None:
    """Hide GPUs from the scripts of this process: `CUDAPlace(n)` returns `CPUPlace()`."""
    for module in (fluid, core, framework):
        for factory in (CUDAPlace, cuda_places):
            if hasattr(module, factory.__name__):
                setattr(module, factory.__name__, factory)
        if hasattr(module, "is_compiled_with_cuda"):
            setattr(module, "is_compiled_with_cuda", lambda: False)  # noqa: B010


_TOLD: list[bool] = []
