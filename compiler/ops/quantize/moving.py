"""Moving-average scales, and fake quantization by them.

Reference: fake_quantize_op.cc. None of these ops has a gradient there, see `fake`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_previous, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.quantize.levels import (
    BITS,
    copy_state,
    dequantized,
    largest,
    quantize_kernel,
    quantized,
    require_float,
    require_scale,
    scalars,
    start_global_abs_max,
)
from compiler.ops.shared_kernels import copy


class MovingAverage(OpDef):
    """A scale that is the moving average of the maximum of |X|.

    In training, State = rate * InState + 1, Accum = rate * InAccum + max |X| and OutScale =
    Accum / State, where `moving_rate` is the rate. With `is_test` none is updated.
    """

    X = reads()
    InAccum = reads(optional=True, no_grad=True)
    InState = reads(optional=True, no_grad=True)
    Out = writes()
    OutScale = writes()
    OutState = writes(optional=True, inplace="InState")
    OutAccum = writes(optional=True, inplace="InAccum")
    moving_rate = attr(0.9)
    is_test = attr(False)

    def check(self, X: TensorType, **state: TensorType | None) -> dict[str, TensorType]:
        """Return the output types except OutScale; raises ShapeError if state is missing."""
        require_float(self.kind, "X", X)
        for slot, tensor_type in state.items():
            if tensor_type is not None:
                require_scale(self.kind, slot, tensor_type, X)
            elif not self.is_test:
                raise ShapeError(f"{self.kind}: {slot} is missing, but required in training")
        one = X.with_shape((1,))
        return {
            "Out": X,
            "OutState": state["InState"] or one,
            "OutAccum": state["InAccum"] or one,
        }

    def move(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        before: tuple[DeviceOperand | None, DeviceOperand | None],
        after: tuple[DeviceOperand | None, DeviceOperand | None],
        scale: DeviceOperand,
    ) -> None:
        """Emit kernels for the state and the scale of a training step; state first, then accum."""
        top = start_global_abs_max(k, X)
        state, accum = scalars(k, *before)
        moved = state * self.moving_rate + 1.0, accum * self.moving_rate + top
        k.store(scale.reshaped((1,)), (0,), moved[1] / moved[0])
        for out, value in zip(after, moved, strict=True):
            if out is not None:
                k.store(out.reshaped((1,)), (0,), value)


def moved(
    X: Array, InAccum: Array | None, InState: Array | None, rate: float, is_test: bool
) -> tuple[Array, Array, Array]:
    """Return the scale of a step (0 in a test), the state and the accumulated sum."""
    zero = np.zeros(1, X.dtype)
    state = zero if InState is None else InState
    accum = zero if InAccum is None else InAccum
    if is_test:
        return zero, state.copy(), accum.copy()
    top = largest(X, tuple(range(X.ndim))).reshape(1)
    state = X.dtype.type(rate) * state + X.dtype.type(1)
    accum = X.dtype.type(rate) * accum + top
    return accum.reshape(1) / state.reshape(1), state, accum


class FakeQuantizeMovingAverage(MovingAverage):
    """Quantization by a moving-average scale; with `is_test`, OutScale = InScale."""

    X = reads()
    InScale = reads(no_grad=True)
    InAccum = reads(optional=True, no_grad=True)
    InState = reads(optional=True, no_grad=True)
    OutScale = writes(inplace="InScale")
    bit_length = attr(8, BITS)

    dequantizes: ClassVar[bool] = False

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        types = self.check(s.X, InAccum=s.get("InAccum"), InState=s.get("InState"))
        require_scale(self.kind, "InScale", s.InScale, s.X)
        return {**types, "OutScale": s.InScale}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        InAccum, InState, OutState = s.get("InAccum"), s.get("InState"), s.get("OutState")
        OutAccum = s.get("OutAccum")
        scale = s.get("OutScale") or k.scratch((1,), X.type.dtype)
        if self.is_test:
            copy(k, s.InScale, scale)
            copy_state(k, InState, OutState)
            copy_state(k, InAccum, OutAccum)
        else:
            self.move(k, X, (InState, InAccum), (OutState, OutAccum), scale)
        if (Out := s.get("Out")) is not None:
            quantize_kernel(k, X, scale, self.bit_length, Out, self.dequantizes)


class FakeQuantizeMovingAverageAbsMax(
    FakeQuantizeMovingAverage, op="fake_quantize_moving_average_abs_max"
):
    """Out = the level of each element, by the moving average of the maximum of |X|."""

    def numpy(
        self, X: Array, InScale: Array, InAccum: Array | None, InState: Array | None
    ) -> dict[str, Array]:
        settings = self.moving_rate, self.is_test
        scale, state, accum = moved(X, InAccum, InState, *settings)
        scale = InScale.copy() if self.is_test else scale.reshape(InScale.shape)
        Out = quantized(X, scale.reshape(1), self.bit_length)
        return {"Out": Out, "OutScale": scale, "OutState": state, "OutAccum": accum}


class FakeQuantizeDequantizeMovingAverageAbsMax(
    FakeQuantizeMovingAverage, op="fake_quantize_dequantize_moving_average_abs_max"
):
    """Out = X rounded to the float of a level, by the moving average of the maximum of |X|."""

    dequantizes = True

    def numpy(
        self, X: Array, InScale: Array, InAccum: Array | None, InState: Array | None
    ) -> dict[str, Array]:
        settings = self.moving_rate, self.is_test
        scale, state, accum = moved(X, InAccum, InState, *settings)
        scale = InScale.copy() if self.is_test else scale.reshape(InScale.shape)
        Out = quantized(X, scale.reshape(1), self.bit_length)
        return {
            "Out": dequantized(Out, scale.reshape(1), self.bit_length),
            "OutScale": scale,
            "OutState": state,
            "OutAccum": accum,
        }


class MovingAverageAbsMaxScale(MovingAverage, op="moving_average_abs_max_scale"):
    """Out = X; OutScale = the moving average of the maximum of |X|, unchanged with `is_test`."""

    Scale = reads_previous("OutScale")
    OutScale = writes(inplace="Scale")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        Scale = s.get("Scale")
        types = self.check(X, InAccum=s.get("InAccum"), InState=s.get("InState"))
        if Scale is not None:
            require_scale(self.kind, "OutScale", Scale, X)
        return {**types, "OutScale": Scale or X.with_shape((1,))}

    def numpy(
        self, X: Array, InAccum: Array | None, InState: Array | None, Scale: Array | None
    ) -> dict[str, Array]:
        settings = self.moving_rate, self.is_test
        scale, state, accum = moved(X, InAccum, InState, *settings)
        if Scale is not None:
            scale = Scale.copy() if self.is_test else scale.reshape(Scale.shape)
        return {"Out": X.copy(), "OutScale": scale, "OutState": state, "OutAccum": accum}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        InAccum, InState, OutScale = s.get("InAccum"), s.get("InState"), s.get("OutScale")
        OutState, OutAccum = s.get("OutState"), s.get("OutAccum")
        if (Out := s.get("Out")) is not None:
            copy(k, X, Out)
        if self.is_test:
            copy_state(k, s.get("Scale"), OutScale)
            copy_state(k, InState, OutState)
            copy_state(k, InAccum, OutAccum)
        else:
            scale = OutScale or k.scratch((1,), X.type.dtype)
            self.move(k, X, (InState, InAccum), (OutState, OutAccum), scale)
