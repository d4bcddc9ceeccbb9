"""CUDA graphs that are captured and destroyed while other threads use the device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache, partial
from threading import Lock
from typing import Any
from weakref import finalize

from runtime.forks import renew_in_children
from runtime.gpu.capture_lock import CAPTURES
from runtime.gpu.cuda import (
    allocate,
    capture_stream,
    current_stream,
    new_graph,
    on_stream,
    prepare_library,
)
from runtime.gpu.streams import StreamOrder


class LibraryWorkspace:
    """Memory of a device that the graphs with calls of a library share, so that each has its turn.

    torch allocates it once for a thread and a stream, and graphs are captured on one stream.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._order = StreamOrder()
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one."""
        self._lock = Lock()

    @contextmanager
    def turn(self) -> Generator[None]:
        """A context in which one thread launches; its stream waits for the turn before."""
        with self._lock:
            self._order.follow(self._device, current_stream(self._device))
            yield


@cache
def library_workspace(device: str) -> LibraryWorkspace:
    """The workspace of a device."""
    return LibraryWorkspace(device)


class StepGraph:
    """The launches and copies of some lines of a step: captured once, then replayed.

    Its CUDA graph is destroyed with it, after the capture that is underway if there is one.

    Graphs with calls of a `library` run one after another, whatever streams they are replayed on.
    """

    def __init__(self, device: str, library: bool = False) -> None:
        self._device = device
        self._workspace = library_workspace(device) if library else None
        self._owned: list[Any] = [new_graph()]
        finalize(self, CAPTURES.release, self._owned)

    @contextmanager
    def capturing(self) -> Generator[None]:
        """A context in which this thread's launches and copies are captured, not run.

        Other threads' captures wait for its end. Raises TooLarge if there is no memory for the
        graph.
        """
        with CAPTURES.exclusive(), on_stream(capture_stream(self._device)):
            if self._workspace is not None:
                prepare_library(self._device)
            self._begin()
            try:
                yield
            except BaseException:
                with suppress(RuntimeError):  # says only that the capture is not valid
                    self._owned[0].capture_end()
                raise
            allocate(self._owned[0].capture_end, "the CUDA graph of a step", self._device)

    def _begin(self) -> None:
        """Begin a capture. If that fails, keep the CUDA graph: torch may end the process when it
        destroys one that it did not register.
        """
        begin = partial(self._owned[0].capture_begin, capture_error_mode="thread_local")
        try:
            allocate(begin, "the CUDA graph of a step", self._device)
        except BaseException:
            CAPTURES.broken.append(self._owned[:])
            raise

    def replay(self) -> None:
        """Launch the work on this thread's current stream."""
        if self._workspace is None:
            self._owned[0].replay()
            return
        with self._workspace.turn():
            self._owned[0].replay()
