"""Copies between host and device that overlap with kernels.

A step is launched on torch's current stream; large uploads go through a copy stream of their own.
What orders them, so that nothing is overwritten that is still to be read:

1. An array is copied into a slot of pinned memory before `upload` returns. The caller may write
   into the array, and a host op into its buffer, at once.
2. A large upload is copied to the slot's bytes on the device on the copy stream, which waits for
   nothing: the kernels of the step before still run. The step's stream waits for the event of that
   copy, and copies from the slot to the value's own address. That address is in the arena, which
   the step before, and earlier kernels of this one, may still use for other values; both run
   before it, since they are on the same stream. Feeds so have two device buffers each, and kernels
   and CUDA graphs keep their addresses. The copy within the device costs a few percent of that from
   the host.
3. A small upload is copied from the slot to the value's address on the step's stream: it takes less
   time than the events of a second stream.
4. A slot has an event on the step's stream after its last copy. Its bytes, in both memories, are
   reused only after the host has waited for that event: the copy on the copy stream came before,
   since the step's stream waited for it.
5. A download is copied to pinned memory of the arena on the step's stream, after which there is an
   event. The host waits for the latest such event once: before the first host op that reads a
   downloaded value, or before the step returns. Kernels launched after the last download, such as
   updates of parameters, still run then.
6. A step on another stream than the last one waits for it first (`runtime.gpu.streams`), so 2 to 5
   hold for it too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.gpu.cuda import current_stream, new_event, new_stream, on_stream, tensor_over
from runtime.gpu.staging import StagingRing

LARGE = 64 << 10
"""Bytes from which an upload goes through the copy stream: a few microseconds of PCIe."""


class Copies:
    """The copies of one Executable's steps, in the order in which the module calls for them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._stream = new_stream(device)
        self._ring = StagingRing(device, self._stream)
        self._downloaded = new_event()
        self._is_waiting = False
        self._recording: Recording | None = None

    @property
    def functions(self) -> tuple[Callable[..., None], ...]:
        """The functions that a module calls in place of its own."""
        return self.upload, self.download, self.downloaded

    def reserve(self, nbytes: int) -> None:
        """Make room for uploads of a step of this many bytes, while the step before is running."""
        self._ring.reserve(2 * nbytes)

    def upload(self, out: Any, array: Array) -> None:
        """Copy an array to the device; its elements have been read when this returns."""
        recording = self._recording
        if recording is not None and recording.inputs is not None:
            recording.capture(out, recording.inputs)
            return
        if recording is not None:
            recording.destinations.append(out)
        if out.numel():
            self._upload(out, array)

    def _upload(self, out: Any, array: Array) -> None:
        slot = self._ring.take(out.numel() * out.element_size())
        staged = slot.host.view(out.dtype).view(out.shape)
        staged.copy_(tensor_over(np.require(array, requirements="W")))
        if slot.stop - slot.start < LARGE:
            out.copy_(staged, non_blocking=True)
        else:
            self._copy_aside(out, staged, slot.there.view(out.dtype).view(out.shape))
        self._ring.release(slot, new_event(current_stream(self.device)))

    @property
    def _is_capturing(self) -> bool:
        return self._recording is not None and self._recording.inputs is not None

    def _copy_aside(self, out: Any, staged: Any, there: Any) -> None:
        """Copy to the slot on the copy stream, and from there on the step's stream."""
        stream = current_stream(self.device)
        with on_stream(self._stream):
            there.copy_(staged, non_blocking=True)
        stream.wait_event(new_event(self._stream))
        there.record_stream(stream)
        out.copy_(there)

    def download(self, out: Array, tensor: Any) -> None:
        """Copy a tensor to the host; the elements are there after `downloaded`."""
        target = tensor_over(out)
        is_plain = target.is_contiguous() and target.dtype == tensor.dtype
        if not (is_plain and target.is_pinned()):
            target.copy_(tensor)
            return
        target.copy_(tensor, non_blocking=True)
        if self._recording is not None:
            self._recording.has_downloads = True
        if not self._is_capturing:
            self.note_download()

    def note_download(self) -> None:
        """Record that downloads were queued on the step's stream, also by a replayed graph."""
        self._downloaded.record(current_stream(self.device))
        self._is_waiting = True

    def downloaded(self) -> None:
        """Wait for the downloads so far."""
        if self._is_waiting:
            self._downloaded.synchronize()
            self._is_waiting = False

    @contextmanager
    def recording(self, inputs: Sequence[Any] | None) -> Generator[Recording]:
        """A context in which uploads are recorded; with `inputs`, a tensor for each, also captured.

        A captured upload copies from its input, which a CUDA graph repeats, instead of its array.
        """
        self._recording = recording = Recording(inputs)
        try:
            yield recording
        finally:
            self._recording = None


@dataclass
class Recording:
    """The copies of some lines: the destinations of their uploads in order, and whether they have
    downloads.

    With `inputs`, a tensor for each upload, they are being captured.
    """

    inputs: Sequence[Any] | None
    destinations: list[Any] = field(default_factory=list[Any])
    has_downloads: bool = False

    def capture(self, out: Any, inputs: Sequence[Any]) -> None:
        """Copy from the input of this upload."""
        out.copy_(inputs[len(self.destinations)])
        self.destinations.append(out)
