"""Results that stay on the device, for callers that take torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.gpu.cuda import current_stream, empty_like, new_event, numpy_dtype, tensor_over
from runtime.gpu.result_blocks import result_blocks


class DeviceResult:
    """A copy of a result in device memory of its own; `array` copies it to the host.

    It is a torch tensor, written on the stream that is current when it is created.
    """

    def __init__(self, tensor: Any, device: str) -> None:
        self._device = device
        self.tensor = empty_like(tensor, f"a result of shape {tuple(tensor.shape)}", device)
        self.tensor.copy_(tensor)
        self._written = new_event(current_stream(device))

    def __deepcopy__(self, memo: object) -> DeviceResult:
        return DeviceResult(self.tensor, self._device)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of its elements."""
        return numpy_dtype(self.tensor)

    def array(self) -> Array:
        """Return a copy of the elements in host memory."""
        stream = current_stream(self._device)
        stream.wait_event(self._written)
        nbytes = self.tensor.numel() * self.tensor.element_size()
        block = result_blocks(self._device).take(nbytes)
        if block is None:
            result = np.empty(self.shape, self.dtype)
            tensor_over(result).copy_(self.tensor)
            return result
        memory, done = block
        result = memory.view(self.dtype).reshape(self.shape)
        tensor_over(result).copy_(self.tensor, non_blocking=True)
        done.record(stream)
        done.synchronize()
        return result
