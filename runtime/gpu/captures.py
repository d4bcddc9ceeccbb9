"""Lines of a step captured as CUDA graphs: all their launches become one.

A module compiled for a GPU makes a `graph` for each long run of launches and copies between those
ops of a step in which the host takes part; the report names these ops. A step of the device alone
is one graph. The lines are the body of a loop over the graph, called with the arrays that they
upload:

    for (keys_host,) in graph_1(make_keys(generator, (-1,))):
        upload(keys, keys_host)
        ...

A graph repeats launches and copies with the addresses and sizes that they had when they were
captured. Each belongs to one `Binding`: new sizes, other arrays of parameters and a grown arena
bind again, and the new lines are captured anew. Uploaded arrays change from step to step, so they
are copied to inputs of the graph, whose addresses are fixed; within the graph they are copied to
the arena, where their bytes may be used by other values before and after. Graphs of a step, and
what is launched between them, run in order on one stream.

Steps of several threads, each with an arena of its own, may be captured and replayed at once: see
`runtime.gpu.capture_lock`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from compiler.ir.types import Array
from runtime.gpu.copies import Copies
from runtime.gpu.cuda import empty_like
from runtime.gpu.graphs import StepGraph


class CapturedLines:
    """Lines that are run as they are once, captured at their second run, and replayed since.

    The first run compiles and loads kernels, which a capture does not allow. An error of a
    capture, such as TooLarge, leaves the lines uncaptured: the next run captures them. Lines may
    call a `library`.
    """

    def __init__(self, copies: Copies, library: bool = False) -> None:
        self._copies = copies
        self._library = library
        self._destinations: list[Any] | None = None
        self._inputs: list[Any] = []
        self._graph: StepGraph | None = None
        self._has_downloads = False

    def __call__(self, *arrays: Array) -> Iterable[Sequence[Array]]:
        """Yield the arrays to a run of the lines, or replay them and yield nothing."""
        if self._graph is not None:
            self._replay(arrays)
            return ()
        if self._destinations is not None:
            return self._captured(arrays, self._destinations)
        return self._first(arrays)

    def _first(self, arrays: Sequence[Array]) -> Generator[Sequence[Array]]:
        with self._copies.recording(None) as recording:
            yield arrays
        self._destinations = recording.destinations

    def _captured(
        self, arrays: Sequence[Array], destinations: Sequence[Any]
    ) -> Generator[Sequence[Array]]:
        """Capture the lines, which does not run them, and replay them.

        An error of a line closes this generator, which ends the capture.
        """
        self._inputs = [*map(self._input, destinations)]
        graph = StepGraph(self._copies.device, self._library)
        with self._copies.recording(self._inputs) as recording, graph.capturing():
            yield arrays
        self._graph, self._has_downloads = graph, recording.has_downloads
        self._replay(arrays)

    def _input(self, destination: Any) -> Any:
        shape = tuple(destination.shape)
        return empty_like(destination, f"an input of shape {shape}", self._copies.device)

    def _replay(self, arrays: Sequence[Array]) -> None:
        assert self._graph is not None
        for buffer, array in zip(self._inputs, arrays, strict=True):
            self._copies.upload(buffer, array)
        self._graph.replay()
        if self._has_downloads:
            self._copies.note_download()


def uncaptured(library: bool = False) -> Any:
    """Return a graph whose lines run each time, as in a script: a profiler times each kernel."""
    return lambda *arrays: [arrays]  # type: ignore[reportUnknownLambdaType]
