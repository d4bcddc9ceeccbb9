"""Times of steps on a device: events of its stream, or the CPU clock without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

WARM_STEPS = 3
ROUND_MS = 20.0
"""Approximate duration of a round of steps."""


def times(
    steps: Mapping[str, Callable[[], object]], on_gpu: bool, rounds: int = 7
) -> dict[str, float]:
    """Milliseconds per step of each, medians of alternating rounds."""
    clock = _gpu_ms if on_gpu else _cpu_ms
    counts = {name: _count(step, clock) for name, step in steps.items()}
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            spent[name].append(clock(step, counts[name]))
    return {name: median(samples) for name, samples in spent.items()}


def _count(step: Callable[[], object], clock: Callable[..., float]) -> int:
    """The number of steps that fill a round; the first ones compile."""
    clock(step, WARM_STEPS)
    return max(1, min(1000, round(ROUND_MS / max(clock(step, 1), 1e-3))))


def _gpu_ms(step: Callable[[], object], count: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def _cpu_ms(step: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) * 1e3 / count


def ceilings(on_gpu: bool, dtypes: Sequence[str]) -> dict[str, float]:
    """Measured limits of the device: GB/s of a copy, TFLOP/s of torch's matmul by dtype."""
    if not on_gpu:
        return {}
    source = torch.empty(1 << 28, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    ms = times({"copy": lambda: target.copy_(source)}, True)["copy"]
    limits = {"copy GB/s": 2 * source.nbytes / ms / 1e6}
    for dtype in dtypes:
        a = torch.randn(8192, 8192, device="cuda").to(getattr(torch, dtype))
        ms = times({"product": lambda a=a: a @ a}, True)["product"]
        limits[f"{dtype} TFLOP/s"] = 2 * 8192**3 / ms / 1e9
    return limits
