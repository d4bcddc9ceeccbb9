"""Fake quantization by the maximum of the input: levels, stored as floats.

Reference: fake_quantize_op.cc. None of these ops has a gradient there: quantization passes
let the gradient ops read the rounded values and differentiate as if nothing was rounded.
"""

from __future__ import annotations

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.quantize.levels import (
    BITS,
    largest,
    level,
    quantize_kernel,
    quantized,
    require_float,
    start_abs_max,
    start_global_abs_max,
)


class FakeQuantize(OpDef):
    """Out = the level of each element of X, in the dtype of X.

    Halves are rounded to even, as the reference does for full SIMD vectors; for the remaining
    elements it rounds them away from 0.
    """

    X = reads()
    Out = writes()
    OutScale = writes()
    bit_length = attr(8, BITS)


class FakeQuantizeAbsMax(FakeQuantize, op="fake_quantize_abs_max"):
    """Out = round(X / s * (2 ** (bit_length - 1) - 1)); OutScale [1] = s, the maximum of |X|."""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_float(self.kind, "X", X)
        return {"Out": X, "OutScale": X.with_shape((1,))}

    def numpy(self, X: Array) -> dict[str, Array]:
        scale = largest(X, tuple(range(X.ndim))).reshape(1)
        return {"Out": quantized(X, scale, self.bit_length), "OutScale": scale}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        scale = s.get("OutScale") or k.scratch((1,), X.type.dtype)
        k.store(scale, (0,), start_global_abs_max(k, X))
        if (Out := s.get("Out")) is not None:
            quantize_kernel(k, X, scale, self.bit_length, Out)


class FakeChannelWiseQuantizeAbsMax(FakeQuantize, op="fake_channel_wise_quantize_abs_max"):
    """`fake_quantize_abs_max` per channel, an index of the first axis; OutScale [channels]."""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_float(self.kind, "X", X)
        if X.rank < 1:
            raise ShapeError(f"{self.kind}: X is {X}, expected an axis of channels")
        return {"Out": X, "OutScale": X.with_shape(X.shape[:1])}

    def numpy(self, X: Array) -> dict[str, Array]:
        scale = largest(X, tuple(range(1, X.ndim)))
        return {"Out": quantized(X, scale, self.bit_length), "OutScale": scale.reshape(-1)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        rows = X.reshaped((X.shape[0], product(X.shape[1:])))
        scale = s.get("OutScale") or k.scratch(X.shape[:1], X.type.dtype)
        left, top = start_abs_max(k, rows, (1,))
        k.store(scale, left[:1], top)
        if (Out := s.get("Out")) is not None:
            i, j = k.grid(*rows.shape)
            rounded = level(k, rows[i, j], scale[i], self.bit_length)
            k.store(Out.reshaped(rows.shape), (i, j), rounded)
