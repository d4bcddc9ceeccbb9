"""Softmax, log-softmax and log-sum-exp."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Rowwise, Slots, Types, Value, Xp, attr, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.opdef.layout_rules import Order, PermutedOp, permuted_axes
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, TensorType
from compiler.ops.math.axes import normalize_axis
from compiler.ops.math.reduce import (
    expand_reduced,
    keepdims_shape,
    normalize_axes,
    reduction_kernel,
)


def require_classes(kind: str, X: TensorType, axis: int) -> TensorType:
    """Return the type; raise ShapeError if there is nothing along the axis."""
    if is_less(X.shape[normalize_axis(kind, axis, X.rank)], 1):
        raise ShapeError(f"{kind}: X is {X}, expected one element or more along axis {axis}")
    return X


class Softmax(Rowwise, op="softmax"):
    """Out = exp(X) / sum(exp(X)) along `axis`.

    X minus its maximum is clamped at -64, so that no probability is 0. Reference: softmax_impl.h.
    """

    X = reads()
    Out = writes()
    device_epilogue = "Out"
    epilogue_grad = "X"
    axis = attr(-1)
    data_format = attr("AnyLayout")
    is_test = attr(False)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return PermutedOp(frozenset({"X", "Out"}), {"axis": permuted_axes([self.axis], order)[0]})

    def result(self, operand: TensorType) -> TensorType:
        return require_classes(self.kind, operand, self.axis)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": self.result(s.Out)}

    def compute(self, xp: Xp, X: Value) -> Value:
        shifted = xp.maximum(X - xp.max(X, axis=self.axis, keepdims=True), -64.0)
        powers = xp.exp(shifted)
        return powers / xp.sum(powers, axis=self.axis, keepdims=True)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        mean = xp.sum(d_Out * Out, axis=self.axis, keepdims=True)
        return {"X": (d_Out - mean) * Out}


class LogSoftmax(Rowwise, op="log_softmax"):
    """Out = log(softmax(X)) along `axis`. Paddle 2 op."""

    X = reads()
    Out = writes()
    device_epilogue = "Out"
    epilogue_grad = "X"
    axis = attr(-1)

    def result(self, operand: TensorType) -> TensorType:
        return require_classes(self.kind, operand, self.axis)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": self.result(s.Out)}

    def compute(self, xp: Xp, X: Value) -> Value:
        shifted = X - xp.max(X, axis=self.axis, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=self.axis, keepdims=True))

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out - xp.exp(Out) * xp.sum(d_Out, axis=self.axis, keepdims=True)}


class LogSumExp(OpDef, op="logsumexp"):
    """Out = log(sum(exp(X))) over the axes `axis`, or all with `reduce_all`; rank 1 or more.

    Paddle 2 op.
    """

    X = reads()
    Out = writes()
    axis = attr([0])
    keepdim = attr(False)
    reduce_all = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if any(not -X.rank <= axis < X.rank for axis in self.axis):
            raise ShapeError(f"logsumexp: axis {self.axis} is out of range for X {X}")
        axes = normalize_axes(X.rank, self.axis, self.reduce_all)
        if self.keepdim:
            return X.with_shape([1 if a in axes else size for a, size in enumerate(X.shape)])
        return X.with_shape([size for a, size in enumerate(X.shape) if a not in axes] or [1])

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.axis, self.reduce_all)
        maximum = X.max(axis=axes, keepdims=True, initial=-np.inf)
        total = np.log(np.exp(X - maximum).sum(axis=axes, keepdims=True)) + maximum
        return np.atleast_1d(total if self.keepdim else np.squeeze(total, axes))

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(X.ndim, self.axis, self.reduce_all)
        share = np.exp(X - expand_reduced(Out, X.shape, axes))
        return {"X": expand_reduced(d_Out, X.shape, axes) * share}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes = normalize_axes(X.type.rank, self.axis, self.reduce_all)
        r, whole, left = reduction_kernel(k, X.shape, axes)
        maximum = k.max(X[whole], r)
        total = k.log(k.sum(k.exp(X[whole] - maximum), r)) + maximum
        k.store(s.Out.reshaped(keepdims_shape(X.shape, axes)), left, total)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, whole = normalize_axes(X.type.rank, self.axis, self.reduce_all), k.grid(*X.shape)
        left = tuple(0 if axis in axes else i for axis, i in enumerate(whole))
        out, upstream = (
            operand.reshaped(keepdims_shape(X.shape, axes))[left] for operand in (s.Out, s.d_Out)
        )
        k.store(s.d_X, whole, upstream * k.exp(X[whole] - out))
