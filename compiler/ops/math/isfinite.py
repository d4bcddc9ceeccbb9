"""Tests of values: finite, infinite, NaN.

Reference: isfinite_op.h. The `…_v2` ops are Paddle 2's.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Pointwise, Slots, Value, Xp, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType


class TensorTest(OpDef):
    """A test of a whole tensor that returns one boolean, [1]."""

    X = reads()
    Out = writes()
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.BOOL, (1,))


class IsFinite(TensorTest, op="isfinite"):
    """Out = whether all elements of X are finite."""

    def numpy(self, X: Array) -> Array:
        return np.isfinite(X).all(keepdims=True).reshape(1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        (one,) = k.grid(1)
        r = k.loop(X.type.numel)
        flags = k.astype(k.isfinite(X.reshaped((X.type.numel,))[r]), DType.INT32)
        k.store(s.Out, (one,), k.not_equal(k.min(flags, r), 0))


class IsInf(TensorTest, op="isinf"):
    """Out = whether any element of X is infinite."""

    def numpy(self, X: Array) -> Array:
        return np.isinf(X).any(keepdims=True).reshape(1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        (one,) = k.grid(1)
        r = k.loop(X.type.numel)
        flags = k.astype(k.isinf(X.reshaped((X.type.numel,))[r]), DType.INT32)
        k.store(s.Out, (one,), k.greater(k.max(flags, r), 0))


class IsNan(TensorTest, op="isnan"):
    """Out = whether any element of X is NaN."""

    def numpy(self, X: Array) -> Array:
        return np.isnan(X).any(keepdims=True).reshape(1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        (one,) = k.grid(1)
        r = k.loop(X.type.numel)
        flags = k.astype(k.isnan(X.reshaped((X.type.numel,))[r]), DType.INT32)
        k.store(s.Out, (one,), k.greater(k.max(flags, r), 0))


class ElementTest(Pointwise):
    """A pointwise test: a boolean for each element of X."""

    X = reads()
    Out = writes()

    def result(self, operand: TensorType) -> TensorType:
        """Return a boolean type of the shape of X."""
        return operand.with_dtype(DType.BOOL)


class IsFiniteV2(ElementTest, op="isfinite_v2"):
    """Out = whether each element of X is finite."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.isfinite(X)


class IsInfV2(ElementTest, op="isinf_v2"):
    """Out = whether each element of X is infinite."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.isinf(X)


class IsNanV2(ElementTest, op="isnan_v2"):
    """Out = whether each element of X is NaN."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.isnan(X)
