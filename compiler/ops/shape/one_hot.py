"""Encodings of integers: one-hot vectors, indices within a shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import differ, require_dtype
from compiler.support.free_memory import expect_memory

# ---- integers -----------------------------------------------------------------------------------


class OneHot(OpDef, op="one_hot"):
    """Out = the one-hot encoding of X along the last axis, of size `depth`.

    The last axis of X has size 1 and is replaced. An index out of range is an error, or with
    `allow_out_of_range` a row of zeros. Reference: one_hot_op.h.
    """

    X = reads(no_grad=True)
    depth_tensor = reads(optional=True, no_grad=True)
    Out = writes()
    depth = attr(-1)
    dtype = attr(DType.FP32.code)
    allow_out_of_range = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        depth_tensor = s.get("depth_tensor")
        require_dtype(self.kind, "X", s.X, DType.INT32, DType.INT64)
        if depth_tensor is None and self.depth < 1:
            raise BadAttribute(f"{self.kind}: 'depth' is {self.depth}, expected 1 or more")
        depth: Any = UNKNOWN if depth_tensor is not None else self.depth
        return TensorType(DType.of(self.dtype), (*self.rows(s.X), depth))

    def rows(self, X: TensorType) -> Shape:
        """Return the axes of Out before the new one."""
        if X.rank < 2 or differ(X.shape[-1], 1):
            raise ShapeError(f"one_hot: X is {X}, expected a last size of 1")
        return X.shape[:-1]

    def numpy(self, X: Array, depth_tensor: Array | None) -> Array:
        depth = self.depth if depth_tensor is None else int(depth_tensor.reshape(-1)[0])
        return one_hot_rows(X[..., 0], depth, self.allow_out_of_range, self.dtype)

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        if not self.allow_out_of_range:
            k.line(f"{k.function(expect_below)}({X}, {Out.shape[-1]})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        indices = k.grid(*Out.shape)
        hot = s.X.reshaped(Out.shape[:-1])[indices[:-1]]
        k.store(Out, indices, k.where(k.equal(hot, indices[-1]), 1, 0))


def expect_below(X: Array, depth: int) -> None:
    """Raise ValueError for an index that is not below the depth of a one-hot row."""
    in_range = (X >= 0) & (depth > X)
    if not in_range.all():
        raise ValueError(f"one_hot: {X[~in_range][0]} is out of range, expected 0 to {depth - 1}")


def one_hot_rows(X: Array, depth: int, lenient: bool, code: int) -> Array:
    """Return a one-hot row per index; raise ValueError for an index out of range unless lenient."""
    if not lenient:
        expect_below(X, depth)
    expect_memory((*X.shape, depth), 1 + element_type(code).itemsize)
    expect_memory((depth,), 8)
    return (X[..., np.newaxis] == np.arange(depth)).astype(element_type(code))


class OneHotV2(OneHot, op="one_hot_v2"):
    """One-hot encoding with a new last axis, after all axes of X.

    Reference: one_hot_v2_op.h.
    """

    def rows(self, X: TensorType) -> Shape:
        """Return all axes of X."""
        return X.shape

    def numpy(self, X: Array, depth_tensor: Array | None) -> Array:
        depth = self.depth if depth_tensor is None else int(depth_tensor.reshape(-1)[0])
        return one_hot_rows(X, depth, self.allow_out_of_range, self.dtype)


def expect_sharded(X: Array, count: int) -> None:
    """Raise ValueError for an index that is not one of those that shards divide."""
    if X.size and not 0 <= X.min() <= X.max() < count:
        raise ValueError(f"shard_index: X is {X.min()} to {X.max()}, expected 0 to {count - 1}")


class ShardIndex(OpDef, op="shard_index"):
    """Out = each index of X relative to its shard, or `ignore_value` if it is in another shard.

    `index_num` indices are divided evenly among `nshards` in order; the last shard may be smaller.
    Reference: shard_index_op.h.
    """

    X = reads(no_grad=True)
    Out = writes()
    index_num = required(int)
    nshards = required(int)
    shard_id = required(int)
    ignore_value = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if not (self.nshards > 0 and 0 <= self.shard_id < self.nshards and self.index_num > 0):
            raise BadAttribute(
                f"shard_index: 'shard_id' is {self.shard_id} of {self.nshards} shards of "
                f"{self.index_num}"
            )
        if X.rank < 2 or differ(X.shape[-1], 1):
            raise ShapeError(f"shard_index: X is {X}, expected a last size of 1")
        require_dtype(self.kind, "X", X, DType.INT32, DType.INT64)
        return X

    def numpy(self, X: Array) -> Array:
        expect_sharded(X, self.index_num)
        size = -(-self.index_num // self.nshards)
        return np.where(X // size == self.shard_id, X % size, self.ignore_value).astype(X.dtype)

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        k.line(f"{k.function(expect_sharded)}({X}, {self.index_num})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        size = -(-self.index_num // self.nshards)
        indices = k.grid(*X.shape)
        in_range = inside(k, X[indices], self.index_num)
        index = k.maximum(X[indices], 0)
        mine = in_range & k.equal(k.div(index, size), self.shard_id)
        k.store(s.Out, indices, k.where(mine, k.mod(index, size), self.ignore_value))
