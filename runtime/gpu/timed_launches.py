"""Kernels, and calls of a library, that are timed on a device, as parts of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from runtime.gpu.cuda import microseconds
from runtime.gpu.graphs import StepGraph
from runtime.gpu.launches import Launcher

LAUNCHES, REPLAYS = 20, 3
"""Launches in a graph, and graphs of which the fastest counts."""


class TimedLauncher:
    """A kernel that appends the microseconds of a launch to `times`; its work must be idempotent.

    It is launched several times: in a graph, since one launch alone may take the host longer than
    the kernel takes the device.
    """

    def __init__(self, launcher: Launcher, device: str, times: list[float]) -> None:
        self._launcher = launcher
        self._device = device
        self._times = times

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: Sequence[int], *arguments: Any, **constants: object) -> None:
        launch = partial(self._launcher[grid], *arguments, **constants)
        self._times.append(timed(launch, self._device))


def timed(launch: Callable[[], None], device: str, library: bool = False) -> float:
    """The microseconds of a launch, or of a call of a `library`, on a device."""
    launch()
    graph = StepGraph(device, library)
    with graph.capturing():
        for _ in range(LAUNCHES):
            launch()
    graph.replay()
    times = [microseconds(device, graph.replay) for _ in range(REPLAYS)]
    return min(times) / LAUNCHES
