"""Shape queries: `shape`, `size` and `is_empty`."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.shared_kernels import numbers_of

# ---- shape queries ------------------------------------------------------------------------------


class ShapeQuery(OpDef):
    """A property of a tensor that depends on its shape only."""

    lod_source = ""

    Input = reads(shape_only=True, no_grad=True)
    Out = writes()


class ShapeOf(ShapeQuery, op="shape"):
    """Out = the shape of Input, int32 [axes]. Reference: shape_op.h."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT32, (s.Input.rank,))

    def numpy(self, Input: Shape) -> Array:
        return np.array(Input, np.int32)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        numbers_of(k, s.Out, s.shape("Input"))


class Size(ShapeQuery, op="size"):
    """Out = the number of elements of Input, int64 [1]. Reference: size_op.cc."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT64, (1,))

    def numpy(self, Input: Shape) -> Array:
        return np.prod(np.array([Input], np.int64), axis=1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        numbers_of(k, s.Out, [product(s.shape("Input"))])


class IsEmpty(OpDef, op="is_empty"):
    """Out = whether X has no elements, bool [1]. Reference: is_empty_op.h."""

    lod_source = ""

    X = reads(shape_only=True, no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.BOOL, (1,))

    def numpy(self, X: Shape) -> Array:
        return np.array([0 in X])

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        (one,), count = k.grid(1), product(s.shape("X"))
        empty = count == 0 if isinstance(count, int) else k.equal(k.size(count), 0)
        k.store(s.Out, (one,), empty)
