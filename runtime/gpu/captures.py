"""Steps captured as CUDA graphs: all launches of a step become one.

A module compiled for a GPU returns a step with a function `uploads`, unless the host takes part in
it in another way: then the report has the reason. `uploads(*feeds)` returns
the arrays that the step copies to the device, in order.

A graph repeats launches and copies with the addresses and sizes that they had when they were
captured. Each belongs to one `Binding`: new sizes, other arrays of parameters and a grown arena
bind again, and the new step is captured anew. Feeds and random keys change from step to step, so
they are copied to inputs of the graph, whose addresses are fixed; within the graph they are copied
to the arena, where their bytes may be used by other values before and after.

Steps of several threads, each with an arena of its own, may be captured and replayed at once: see
`runtime.gpu.capture_lock`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler.ir.types import Array
from runtime.gpu.copies import Copies
from runtime.gpu.cuda import empty_like
from runtime.gpu.graphs import StepGraph

Step: TypeAlias = Callable[..., tuple[Array, ...]]


class CapturedStep:
    """A step that is launched as usual once, captured at its second call, and replayed since.

    The first call compiles and loads kernels, which a capture does not allow. An error of a
    capture, such as TooLarge, leaves the step uncaptured: the next call captures it.
    """

    def __init__(self, step: Step, uploads: Callable[..., Sequence[Array]], copies: Copies) -> None:
        self._step = step
        self._uploads = uploads
        self._copies = copies
        self._destinations: list[Any] | None = None
        self._inputs: list[Any] = []
        self._graph: StepGraph | None = None
        self._results: tuple[Array, ...] = ()

    def __call__(self, *feeds: Array) -> tuple[Array, ...]:
        """Run the step once, or replay it."""
        if self._graph is not None:
            return self._replay(self._uploads(*feeds))
        if self._destinations is not None:
            return self._replay(self._capture(feeds, self._destinations))
        with self._copies.recording(None) as recording:
            results = self._step(*feeds)
        self._destinations = recording.destinations
        return results

    def _capture(self, feeds: Sequence[Array], destinations: Sequence[Any]) -> list[Array]:
        """Capture the step without running it; return the arrays that it uploads."""
        self._inputs = [*map(self._input, destinations)]
        graph = StepGraph(self._copies.device)
        with self._copies.recording(self._inputs) as recording, graph.capturing():
            self._results = self._step(*feeds)
        self._graph = graph
        return recording.arrays

    def _input(self, destination: Any) -> Any:
        shape = tuple(destination.shape)
        return empty_like(destination, f"an input of shape {shape}", self._copies.device)

    def _replay(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        assert self._graph is not None
        for buffer, array in zip(self._inputs, arrays, strict=True):
            self._copies.upload(buffer, array)
        self._graph.replay()
        if self._results:
            self._copies.finish()
        return self._results


def captured(step: Step, copies: Copies) -> Step:
    """The step, captured if its module allows it."""
    uploads = getattr(step, "uploads", None)
    return step if uploads is None else CapturedStep(step, uploads, copies)
