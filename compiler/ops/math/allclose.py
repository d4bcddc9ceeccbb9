"""Comparison of whole tensors: allclose, equal_all, equal_reduce.

Reference: allclose_op.h, compare_all_op.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.broadcasting import broadcast
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.shared_kernels import all_iterations, everywhere, fill
from compiler.ops.type_checks import require_same_dtype, require_same_shape


class AllClose(OpDef, op="allclose"):
    """Out = whether |Input - Other| <= atol + rtol * |Other| everywhere: one boolean, [1].

    With `equal_nan` NaNs compare equal.
    """

    Input = reads()
    Other = reads()
    Out = writes()
    rtol = attr(1e-5)
    atol = attr(1e-8)
    equal_nan = attr(False)
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_same_dtype(self.kind, Input=s.Input, Other=s.Other)
        require_same_shape(self.kind, Input=s.Input, Other=s.Other)
        return TensorType(DType.BOOL, (1,))

    def numpy(self, Input: Array, Other: Array) -> Array:
        close = np.isclose(Input, Other, self.rtol, self.atol, self.equal_nan)
        return close.all(keepdims=True).reshape(1)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        (one,) = k.grid(1)
        r = k.loop(Input.type.numel)
        x, y = (operand.reshaped((Input.type.numel,))[r] for operand in (Input, s.Other))
        near = k.absolute(x - y) <= self.atol + self.rtol * k.absolute(y)
        close = k.equal(x, y) | (near & k.isfinite(y))
        if self.equal_nan:
            close = close | (k.isnan(x) & k.isnan(y))
        k.store(s.Out, (one,), all_iterations(k, close, r))


class EqualAll(OpDef, op="equal_all"):
    """Out = whether X and Y are equal in shape and every element: one boolean, [1]. Paddle 2 op."""

    X = reads()
    Y = reads()
    Out = writes()
    axis = attr(-1)
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_same_dtype(self.kind, X=s.X, Y=s.Y)
        return TensorType(DType.BOOL, (1,))

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.full(1, np.array_equal(X, Y))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.X, s.Y
        unequal = [pair for pair in zip(X.shape, Y.shape, strict=False) if pair[0] != pair[1]]
        differ_statically = any(isinstance(a, int) and isinstance(b, int) for a, b in unequal)
        if X.type.rank != Y.type.rank or differ_statically:
            fill(k, s.Out, False)
            return
        (one,) = k.grid(1)
        r = k.loop(X.type.numel)
        same_shape = everywhere(k, [k.equal(k.size(a), k.size(b)) for a, b in unequal])
        x, y = X.reshaped((X.type.numel,))[r], Y.reshaped((Y.type.numel,))
        same = all_iterations(k, k.equal(x, y.at(r, where=same_shape, other=0)), r)
        k.store(s.Out, (one,), same if same_shape is None else same & same_shape)


def aligned_shape(axis: int, X: Sequence[Any], Y: Sequence[Any]) -> tuple[Any, ...]:
    """Return Y's shape padded with trailing axes of size 1, so that it aligns with `axis` of X.

    >>> aligned_shape(0, (2, 3), (2,)), aligned_shape(-1, (2, 3), (3,))
    ((2, 1), (3,))
    """
    trailing = 0 if axis < 0 else len(X) - axis - len(Y)
    return (*Y, *[1] * trailing)


class EqualReduce(OpDef, op="equal_reduce"):
    """Out = whether X equals Y everywhere, [1]; Y broadcasts as in `elementwise_add`.

    Reference: compare_all_op.cc.
    """

    X = reads()
    Y = reads()
    Out = writes()
    axis = attr(-1)
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_same_dtype(self.kind, X=X, Y=s.Y)
        broadcast(self.kind, [X.shape, aligned_shape(self.axis, X.shape, s.Y.shape)])
        return TensorType(DType.BOOL, (1,))

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.full(1, np.equal(X, Y.reshape(aligned_shape(self.axis, X.shape, Y.shape))).all())

    def host_only(self, types: Mapping[str, TensorType]) -> str:
        """Return why a call has no device kernel; empty if it has one."""
        X, Y = types["X"].shape, types["Y"].shape
        spread = broadcast(self.kind, [X, aligned_shape(self.axis, X, Y)]) == X
        return "" if spread and X else "X broadcasts to the shape of Y"

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        (one,) = k.grid(1)
        r = k.loop(X.type.numel)
        y = s.Y.reshaped(aligned_shape(self.axis, X.shape, s.Y.shape))
        whole = (1,) * (X.type.rank - len(y.shape)) + tuple(y.shape)
        indices = [0 if n == 1 else i for n, i in zip(whole, k.unravel(r, X.shape), strict=True)]
        same = k.equal(X.reshaped((X.type.numel,))[r], y[tuple(indices[-len(y.shape) :])])
        k.store(s.Out, (one,), all_iterations(k, same, r))
