"""Fake quantization by the maximum over the last batches. Reference: fake_quantize_op.cc."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Slots, attr, reads, reads_previous, writes
from compiler.ir.opdef.attribute_bounds import at_least
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.quantize.fake import FakeQuantize
from compiler.ops.quantize.levels import (
    copy_state,
    largest,
    quantize_kernel,
    quantized,
    require_count,
    require_float,
    require_scale,
    start_global_abs_max,
)
from compiler.ops.shared_kernels import copy
from compiler.ops.type_checks import require_dtype


class FakeQuantizeRangeAbsMax(FakeQuantize, op="fake_quantize_range_abs_max"):
    """Out = the level of each element by OutScale = the maximum of |X| over the last batches.

    Training writes the maximum of |X| into OutScales [window_size] at Iter % window_size. OutScale
    is the larger of it and InScale; if it overwrote InScale, the largest in the window.
    With `is_test`, OutScale = InScale and OutScales is not updated.
    """

    InScale = reads(no_grad=True)
    Iter = reads(optional=True, no_grad=True)
    Scales = reads_previous("OutScales")
    OutScale = writes(inplace="InScale")
    OutScales = writes(optional=True, inplace="Scales")
    window_size = attr(10000, at_least(1))
    is_test = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        Scales = s.get("Scales")
        require_float(self.kind, "X", X)
        require_scale(self.kind, "InScale", s.InScale, X)
        if (Iter := s.get("Iter")) is not None:
            require_count(self.kind, "Iter", Iter, 1)
            require_dtype(self.kind, "Iter", Iter, DType.INT64)
        elif not self.is_test:
            raise ShapeError(f"{self.kind}: Iter is missing, expected the training step")
        if Scales is not None:
            require_count(self.kind, "OutScales", Scales, self.window_size)
        window = Scales or X.with_shape((self.window_size,))
        return {"Out": X, "OutScale": s.InScale, "OutScales": window}

    def numpy(
        self, X: Array, InScale: Array, Iter: Array | None, Scales: Array | None
    ) -> dict[str, Array]:
        window = np.zeros(self.window_size, X.dtype) if Scales is None else Scales.copy()
        scale = InScale.copy()
        if Iter is not None and not self.is_test:
            top = largest(X, tuple(range(X.ndim))).reshape(1)[0]
            scale[...] = ranged(top, InScale.reshape(1)[0], int(Iter.reshape(1)[0]), window)
        return {
            "Out": quantized(X, scale.reshape((1,) * X.ndim), self.bit_length),
            "OutScale": scale,
            "OutScales": window,
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Iter, Scales, OutScales = s.get("Iter"), s.get("Scales"), s.get("OutScales")
        scale = s.get("OutScale") or k.scratch((1,), X.type.dtype)
        if self.is_test or Iter is None:
            copy(k, s.InScale, scale)
            copy_state(k, Scales, OutScales)
        else:
            self.track(k, X, (s.InScale, Iter, Scales), scale, OutScales)
        if (Out := s.get("Out")) is not None:
            quantize_kernel(k, X, scale, self.bit_length, Out)

    def track(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        state: tuple[DeviceOperand, DeviceOperand, DeviceOperand | None],
        scale: DeviceOperand,
        window: DeviceOperand | None,
    ) -> None:
        """Emit kernels for the maximum of X, and for the updates of the window and the scale."""
        InScale, Iter, Scales = state
        maximum = k.scratch((1,), X.type.dtype)
        k.store(maximum, (0,), start_global_abs_max(k, X))
        (n,) = k.grid(1)
        step, before, top = Iter.reshaped((1,))[n], InScale.reshaped((1,))[n], maximum[n]
        position, r = k.mod(step, self.window_size), k.loop(self.window_size)
        old = top * 0 if Scales is None else Scales.reshaped((self.window_size,))[r]
        removed = top * 0 if Scales is None else Scales.reshaped((self.window_size,))[position]
        new = k.where(k.equal(r, position), top, old)
        window_maximum = k.max(k.where(r < k.maximum(step, 1), k.absolute(new), top * 0), r)
        removed_maximum = k.absolute(removed - before) < 1e-6
        result = k.where(before < top, top, k.where(removed_maximum, window_maximum, before))
        k.store(scale.reshaped((1,)), (n,), result)
        if window is not None:
            k.store(window.reshaped((self.window_size,)), (n, r)[1:], new)


def ranged(top: float, before: float, step: int, window: Array) -> float:
    """Return the scale of a step, and write its maximum into the window, in place."""
    position = step % window.size
    removed, window.reshape(-1)[position] = window.reshape(-1)[position], top
    if before < top:
        return top
    if abs(removed - before) < 1e-6:
        return np.abs(window.reshape(-1)[: max(step, 1)]).max()
    return before
