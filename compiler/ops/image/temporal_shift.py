"""temporal_shift: channels moved to the neighbouring frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.image.layouts import (
    require_images,
)
from compiler.ops.image.pixel_shuffle import require_divisible


class TemporalShift(OpDef, op="temporal_shift"):
    """Out = X with some channels shifted by one frame forward, some backward in time.

    X is [N·T, C, H, W] with `seg_num` T frames per clip. The first C·`shift_ratio` channels come
    from the previous frame, as many from the next, 0 where there is none; the others are copied.
    Reference: temporal_shift_op.cc.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Out = writes()
    seg_num: Attr[int] = required(int)
    shift_ratio = attr(0.25)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        require_divisible(self.kind, X, "frames", X.shape[0], self.seg_num)
        if not 0 < self.shift_ratio < 0.5:
            actual = f"temporal_shift: shift_ratio is {self.shift_ratio}"
            raise BadAttribute(actual, hint="expected more than 0 and less than 0.5")
        return X

    def numpy(self, X: Array) -> Array:
        return shifted_in_time(X, self.seg_num, self.shift_ratio, 1)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": shifted_in_time(d_Out, self.seg_num, self.shift_ratio, -1)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.move(k, s.X, s.Out, 1)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.move(k, s.d_Out, s.d_X, -1)

    def move(self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, step: int) -> None:
        """Emit `shifted_in_time` over the elements of X."""
        channels = X.shape[1]
        if not isinstance(channels, int):
            raise ShapeError(f"{self.kind}: the number of channels must be static")
        one, two = int(channels * self.shift_ratio), int(channels * 2 * self.shift_ratio)
        f, c, y, x = indices = k.grid(*X.shape)
        back = k.where(c < one, -step, k.where(c < two, step, 0))
        frame = k.mod(f, self.seg_num) + back
        inside = (frame >= 0) & (frame < self.seg_num)
        k.store(Out, indices, X.at(f + back, c, y, x, where=inside, other=0))


def shifted_in_time(X: Array, frames: int, ratio: float, step: int) -> Array:
    """Return X with the first channels from `step` frames before, as many from after."""
    clips = X.reshape(X.shape[0] // frames, frames, *X.shape[1:])
    one, two = int(X.shape[1] * ratio), int(X.shape[1] * 2 * ratio)
    result, back, on = np.zeros_like(clips), slice(None, -1), slice(1, None)
    first, second = (back, on) if step > 0 else (on, back)
    result[:, second, :one] = clips[:, first, :one]
    result[:, first, one:two] = clips[:, second, one:two]
    result[:, :, two:] = clips[:, :, two:]
    return result.reshape(X.shape)
