"""Host arrays and their copies on a device: which of the two is current."""

from __future__ import annotations

from typing import Any

from compiler.ir.types import Array
from runtime.gpu.cuda import current_stream, empty_like, tensor_over
from runtime.gpu.streams import StreamOrder


class Mirror:
    """A host array and its device copy; the one last requested for writing is current.

    `order`, if not None, is that of the steps that use the copy: copying waits for them.
    """

    def __init__(self, array: Array, device: str, order: StreamOrder | None = None) -> None:
        self._order = order
        self.array = array
        self.device = device
        self.shares = device == "cpu"
        mirrored = tensor_over(array)
        what = f"state of {array.nbytes} bytes"
        self.tensor = mirrored if self.shares else empty_like(mirrored, what, device)
        self.is_ahead = False

    def push(self) -> bool:
        """Update the device tensor, which is current from now on; True if it was stale."""
        behind = not self.is_ahead and not self.shares
        if behind:
            self._follow()
            self.tensor.copy_(tensor_over(self.array))
        self.is_ahead = True
        return behind

    def pull(self) -> bool:
        """Update the host array, which is current from now on; True if it was stale."""
        behind = self.is_ahead and not self.shares
        if behind:
            self._follow()
            tensor_over(self.array).copy_(self.tensor)
        self.is_ahead = False
        return behind

    def _follow(self) -> None:
        if self._order is not None:
            self._order.follow(self.device, current_stream(self.device))


class Mirrors:
    """Device copies of a mapping's arrays: current while the context is entered, else the arrays
    are.

    If a device has separate memory, each step copies them there and back; those of a scope stay on
    the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._held: dict[str, Mirror] = {}

    def device_copy(self, name: str, array: Array) -> Any:
        """The device copy of an array."""
        mirror = self._held.get(name)
        if mirror is None or mirror.array is not array:
            mirror = self._held[name] = Mirror(array, self._device)
        return mirror.tensor

    def __enter__(self) -> None:
        for mirror in self._held.values():
            mirror.push()

    def __exit__(self, *_: object) -> None:
        for mirror in self._held.values():
            mirror.pull()
