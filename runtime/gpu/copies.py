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
5. A result of at least 64 KiB is copied to a block of pinned memory that the caller gets
   (`runtime.gpu.result_blocks`). The block is reused when no array is over it any more, and after
   the event that follows the copy. If there is no block, chunks of the result are copied to pinned
   memory of the arena, with an event after each; threads wait for it and copy the chunk to memory
   of the caller. Nothing else writes this memory before the step returns, and `run` returns after
   the last chunk was copied.
6. Another download is copied to pinned memory of the arena on the step's stream, after which there
   is an event. The host waits for the latest such event once: before the first host op that reads a
   downloaded value, or before the step returns. Kernels launched after the last download, such as
   updates of parameters, still run then.
7. A step on another stream than the last one waits for it first (`runtime.gpu.streams`), so 2 to 6
   hold for it too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.gpu.chunks import chunks, copied
from runtime.gpu.cuda import (
    bytes_of,
    current_stream,
    new_event,
    new_stream,
    numpy_dtype,
    on_stream,
    tensor_over,
)
from runtime.gpu.device_results import DeviceResult
from runtime.gpu.result_blocks import result_blocks
from runtime.gpu.staging import StagingRing, StagingSlot

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
        self._blocks = result_blocks(device)
        self.keeps_results = False
        """Whether results of the steps that follow stay on the device."""

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that a module calls in place of its own."""
        return self.upload, self.download, self.fetch, self.downloaded

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
        try:
            if slot.stop - slot.start < LARGE:
                _stage(slot, out, array)
                out.copy_(slot.host.view(out.dtype).view(out.shape), non_blocking=True)
            else:
                self._copy_aside(slot, out, array)
        finally:
            self._ring.release(slot, new_event(current_stream(self.device)))

    @property
    def _is_capturing(self) -> bool:
        return self._recording is not None and self._recording.inputs is not None

    def _copy_aside(self, slot: StagingSlot, out: Any, array: Array) -> None:
        """Copy to the slot on the copy stream, and from there on the step's stream."""
        stream = current_stream(self.device)
        for part in _staged(slot, out, array):
            with on_stream(self._stream):
                slot.there[part].copy_(slot.host[part], non_blocking=True)
        stream.wait_event(new_event(self._stream))
        slot.there.record_stream(stream)
        out.copy_(slot.there.view(out.dtype).view(out.shape))

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

    def fetch(self, out: Array, tensor: Any) -> Fetch | DeviceResult:
        """Begin the copy of a result to memory of the caller; `out` is pinned memory for it.

        Nothing else reads `out`, or writes it before the next step.
        """
        if self.keeps_results:
            return DeviceResult(tensor, self.device)
        if out.nbytes < LARGE:
            self.download(out, tensor)
            return Fetch(self.downloaded, out.copy)
        block = self._blocks.take(out.nbytes)
        if block is None:
            return self._fetch_in_chunks(out, tensor)
        memory, done = block
        result = memory.view(out.dtype).reshape(out.shape)
        tensor_over(result).copy_(tensor, non_blocking=True)
        done.record(current_stream(self.device))
        return Fetch(done.synchronize, lambda: result)

    def _fetch_in_chunks(self, out: Array, tensor: Any) -> Fetch:
        """Copy through `out`: a range is copied on by a thread while the device copies the next."""
        source, staged = bytes_of(tensor), out.reshape(-1).view(np.uint8)
        events: list[Any] = []
        for part in chunks(out.nbytes):
            tensor_over(staged[part]).copy_(source[part], non_blocking=True)
            events.append(new_event(current_stream(self.device)))

        def array() -> Array:
            result = np.empty(out.shape, out.dtype)
            waits = [event.synchronize for event in events]
            for _ in copied(result.reshape(-1).view(np.uint8), staged, waits):
                pass
            return result

        return Fetch(None, array)

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


@dataclass(frozen=True)
class Fetch:
    """A result that is being copied to the host, in memory that is the caller's."""

    wait: Callable[[], None] | None
    result: Callable[[], Array]

    def array(self) -> Array:
        """Wait for the copy; return the result."""
        if self.wait is not None:
            self.wait()
        return self.result()


def _stage(slot: StagingSlot, out: Any, array: Array) -> None:
    """Copy an array to a slot, converted to the dtype of `out` and broadcast to its shape."""
    staged = slot.array.view(numpy_dtype(out)).reshape(tuple(out.shape))
    np.copyto(staged, array, casting="unsafe")


def _staged(slot: StagingSlot, out: Any, array: Array) -> Iterable[slice]:
    """Copy an array to a slot, in chunks if it is large; yield each range of copied bytes."""
    if array.dtype == numpy_dtype(out) and array.size == out.numel() and array.flags.c_contiguous:
        return copied(slot.array, array.reshape(-1).view(np.uint8))
    _stage(slot, out, array)
    return [slice(0, slot.stop - slot.start)]


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
