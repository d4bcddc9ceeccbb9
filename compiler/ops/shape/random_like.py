"""Random numbers that depend on a tensor: its batch size, or its values as probabilities."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.shape.creation import BatchSizeLike, with_size_of
from compiler.ops.shape.random import normal_numbers, require_float, uniform_numbers, write_diagonal
from compiler.ops.shape.random_kernels import (
    draw_bernoulli,
    draw_categorical,
    draw_normal,
    draw_uniform,
)
from compiler.ops.type_checks import require_dtype

# ---- tensors with another tensor's batch size ---------------------------------------------------


class UniformRandomBatchSizeLike(BatchSizeLike, op="uniform_random_batch_size_like"):
    """`BatchSizeLike` with uniform numbers in [min, max).

    Reference: uniform_random_batch_size_like_op.cc.
    """

    is_random = True

    Key = reads(optional=True, no_grad=True)
    min = attr(-1.0)
    max = attr(1.0)
    seed = attr(0)
    diag_num = attr(0)
    diag_step = attr(0)
    diag_val = attr(1.0)
    place = attr(0)

    def sized(self, count: Size) -> TensorType:
        require_float(self.kind, self.dtype)
        return super().sized(count)

    def numpy(self, Input: Shape, Key: Array | None) -> Array:
        sizes = with_size_of(self.shape, self.output_dim_idx, Input, self.input_dim_idx)
        dtype = element_type(self.dtype).type
        drawn = uniform_numbers(Key, self.place, self.seed, sizes, dtype)
        Out = drawn * dtype(self.max - self.min) + dtype(self.min)
        return write_diagonal(Out, self.diag_num, self.diag_step, self.diag_val)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        diagonal = (self.diag_num, self.diag_step + 1, self.diag_val)
        draw_uniform(k, s.Key, self.place, s.Out, self.min, self.max, diagonal)


class GaussianRandomBatchSizeLike(BatchSizeLike, op="gaussian_random_batch_size_like"):
    """`BatchSizeLike` with normal numbers. Reference: gaussian_random_batch_size_like_op.cc."""

    is_random = True

    Key = reads(optional=True, no_grad=True)
    mean = attr(0.0)
    std = attr(1.0)
    seed = attr(0)
    place = attr(0)

    def sized(self, count: Size) -> TensorType:
        require_float(self.kind, self.dtype)
        return super().sized(count)

    def numpy(self, Input: Shape, Key: Array | None) -> Array:
        sizes = with_size_of(self.shape, self.output_dim_idx, Input, self.input_dim_idx)
        dtype = element_type(self.dtype).type
        drawn = normal_numbers(Key, self.place, self.seed, sizes, dtype)
        return drawn * dtype(self.std) + dtype(self.mean)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_normal(k, s.Key, self.place, s.Out, self.mean, self.std)


# ---- sampling by probabilities ------------------------------------------------------------------


class Bernoulli(OpDef, op="bernoulli"):
    """Out = 1 with probability X, elementwise, else 0. Paddle 2 op."""

    is_random = True

    X = reads(no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Out = writes()
    place = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "X", s.X, DType.FP32, DType.FP64)
        return s.X

    def numpy(self, X: Array, Key: Array | None) -> Array:
        return (uniform_numbers(Key, self.place, 0, X.shape, X.dtype.type) < X).astype(X.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_bernoulli(k, s.X, s.Key, self.place, s.Out)


class SamplingId(OpDef, op="sampling_id"):
    """Out = for each row of X, the index where its cumulative weights exceed a random number.

    The number is uniform in [`min`, `max`); if the total does not exceed it, the last index is
    returned. Reference: sampling_id_op.h.
    """

    is_random = True

    X = reads(no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Out = writes()
    min = attr(0.0)
    max = attr(1.0)
    seed = attr(0)
    place = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if X.rank != 2:
            raise ShapeError(f"sampling_id: X is {X}, expected [batch, weights]")
        if self.min >= self.max:
            raise BadAttribute(f"sampling_id: 'min' is {self.min}, not below 'max' {self.max}")
        return TensorType(DType.INT64, X.shape[:1])

    def numpy(self, X: Array, Key: Array | None) -> Array:
        dtype = np.float64 if X.dtype == np.float64 else np.float32
        drawn = uniform_numbers(Key, self.place, self.seed, [len(X), 1], dtype)
        drawn = drawn * (self.max - self.min) + self.min
        passed = np.cumsum(X, axis=1) > drawn
        passed[:, -1] = True
        return np.argmax(passed, axis=1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_categorical(k, s.X, s.Key, self.place, s.Out, self.min, self.max)
