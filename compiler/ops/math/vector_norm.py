"""Vector norms and distances.

Reference: norm_op.h, p_norm_op.h, squared_l2_norm_op.h, l1_norm_op.h, dist_op.h,
frobenius_norm_op.cc.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, Value, Xp, attr, broadcast, reads, required, writes
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.reduce import (
    AxisReduction,
    expand_reduced,
    keepdims_shape,
    normalize_axes,
    reduction_kernel,
    sum_to,
    sum_to_shape,
)
from compiler.ops.math.sort import check_axis
from compiler.ops.shared_kernels import broadcast_at, split_at
from compiler.ops.type_checks import require_same_dtype


class Norm(OpDef, op="norm"):
    """Out = X / Norm, where Norm = sqrt(sum(X²) + epsilon) along `axis`, kept with size 1."""

    lod_source = ""

    X = reads()
    Norm = writes()
    Out = writes()
    axis = required(int)
    epsilon = attr(1e-10)
    is_test = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        check_axis(self.kind, X, self.axis)
        axis = self.axis % X.rank
        norms = X.with_shape((*X.shape[:axis], 1, *X.shape[axis + 1 :]))
        return {"Norm": norms, "Out": X}

    def numpy(self, X: Array) -> dict[str, Array]:
        norm = np.sqrt(np.sum(X * X, axis=self.axis, keepdims=True) + self.epsilon)
        return {"Norm": norm, "Out": X / norm}

    def grad(self, X: Array, Norm: Array, d_Out: Array) -> dict[str, Array]:
        along = np.sum(X * d_Out, axis=self.axis, keepdims=True)
        return {"X": (d_Out - X * (along / (Norm * Norm))) / Norm}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        whole = split_at(X.shape, self.axis % X.type.rank)
        i, j = k.grid(whole[0], whole[2])
        r = k.loop(whole[1])
        x = X.reshaped(whole)[i, r, j]
        length = k.sqrt(k.sum(x * x, r) + self.epsilon)
        if (Norm := s.get("Norm")) is not None:
            k.store(Norm.reshaped((whole[0], whole[2])), (i, j), length)
        if (Out := s.get("Out")) is not None:
            k.store(Out.reshaped(whole), (i, r, j), x / length)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        whole = split_at(X.shape, self.axis % X.type.rank)
        i, j = k.grid(whole[0], whole[2])
        r = k.loop(whole[1])
        x, upstream = (operand.reshaped(whole)[i, r, j] for operand in (X, s.d_Out))
        length = s.Norm.reshaped((whole[0], whole[2]))[i, j]
        along = k.sum(x * upstream, r) / (length * length)
        k.store(s.d_X.reshaped(whole), (i, r, j), (upstream - x * along) / length)


# ---- p-norms -----------------------------------------------------------------------------------


def p_norm(X: Array, p: float, axis: Any) -> Array:
    """Return (sum(|X| ** p)) ** (1/p), axes kept; non-zero count for 0, max or min for ±inf."""
    size = np.abs(X)
    if p == 0.0:
        return np.sum(size != 0, axis=axis, keepdims=True).astype(X.dtype)
    if p in (np.inf, -np.inf):
        return (size.max if p > 0 else size.min)(axis=axis, keepdims=True)
    return np.asarray(np.sum(size**p, axis=axis, keepdims=True) ** (1.0 / p))


def p_norm_slope(X: Array, norm: Array, p: float) -> Array:
    """Return the derivative of a p-norm with respect to X; 0 where an element is 0."""
    if p == 0.0:
        return np.zeros_like(X)
    if p in (np.inf, -np.inf):
        return np.sign(X) * (np.abs(X) == norm)
    relative = np.abs(X) / np.where(norm == 0, 1, norm)
    return np.sign(X) * np.where(X == 0, 1, relative) ** (p - 1.0)


def kernel_p_norm(k: KernelBuilder, x: Number, p: float, over: Number) -> Number:
    """Return the `p_norm` of a kernel value over a loop."""
    size = k.absolute(x)
    if p == 0.0:
        return k.sum(k.where(size > 0, size * 0 + 1, size * 0), over)
    if p in (np.inf, -np.inf):
        return k.max(size, over) if p > 0 else k.min(size, over)
    return k.power(k.sum(k.power(size, p), over), 1.0 / p)


def kernel_p_norm_slope(k: KernelBuilder, x: Number, norm: Number, p: float) -> Number:
    """Return the `p_norm_slope` of one kernel value."""
    size = k.absolute(x)
    if p == 0.0:
        return x * 0
    if p in (np.inf, -np.inf):
        return k.where(k.equal(size, norm), k.sign(x), 0)
    relative = k.where(size > 0, size / k.where(norm > 0, norm, 1), 1)
    return k.sign(x) * k.power(relative, p - 1.0)


class PNorm(OpDef, op="p_norm"):
    """Out = the p-norm of X along `axis`, p being `porder`; of all elements with `asvector`.

    The axis is removed unless `keepdim`. The reference supports finite orders above 0 only, and no
    `asvector`; Paddle 2 has both.
    """

    X = reads()
    Out = writes()
    porder = attr(2.0)
    axis = attr(-1)
    epsilon = attr(1e-12)
    keepdim = attr(False)
    asvector = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        check_axis(self.kind, X, self.axis)
        axes = range(X.rank) if self.asvector else [self.axis % X.rank]
        if math.isinf(self.porder) and is_less(product(X.shape[axis] for axis in axes), 1):
            raise ShapeError(f"p_norm: X is {X}, expected elements to take the extreme of")
        if self.keepdim:
            return X.with_shape([1 if a in axes else size for a, size in enumerate(X.shape)])
        return X.with_shape([size for a, size in enumerate(X.shape) if a not in axes] or [1])

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, [self.axis], self.asvector)
        norm = p_norm(X, self.porder, axes)
        return norm if self.keepdim else np.atleast_1d(np.squeeze(norm, axes))

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(X.ndim, [self.axis], self.asvector)
        slope = p_norm_slope(X, expand_reduced(Out, X.shape, axes), self.porder)
        return {"X": expand_reduced(d_Out, X.shape, axes) * slope}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, p = normalize_axes(X.type.rank, [self.axis], self.asvector), self.porder
        r, whole, left = reduction_kernel(k, X.shape, axes)
        k.store(
            s.Out.reshaped(keepdims_shape(X.shape, axes)), left, kernel_p_norm(k, X[whole], p, r)
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, p = normalize_axes(X.type.rank, [self.axis], self.asvector), self.porder
        whole = k.grid(*X.shape)
        left = tuple(0 if axis in axes else i for axis, i in enumerate(whole))
        norm, upstream = (
            operand.reshaped(keepdims_shape(X.shape, axes))[left] for operand in (s.Out, s.d_Out)
        )
        k.store(s.d_X, whole, upstream * kernel_p_norm_slope(k, X[whole], norm, p))


class FrobeniusNorm(AxisReduction, op="frobenius_norm"):
    """Out = the square root of the sum of squares over axes."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if self.out_dtype >= 0 and DType.of(self.out_dtype) is not X.dtype:
            raise BadAttribute(
                f"{self.kind}: 'out_dtype' is {self.out_dtype}, expected that of X {X}, or -1"
            )
        return super().infer(s)

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        norm = np.sqrt(np.sum(X * X, axis=axes, keepdims=self.keep_dim))
        return np.atleast_1d(norm)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        slope = p_norm_slope(X, expand_reduced(Out, X.shape, axes), 2.0)
        return {"X": expand_reduced(d_Out, X.shape, axes) * slope}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        r, whole, left = reduction_kernel(k, X.shape, self.axes(X.type.rank))
        k.store(s.Out.reshaped(self.spread(X.shape)), left, k.sqrt(k.sum(X[whole] * X[whole], r)))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, whole = self.axes(X.type.rank), k.grid(*X.shape)
        left = tuple(0 if axis in axes else i for axis, i in enumerate(whole))
        norm, upstream = (
            operand.reshaped(self.spread(X.shape))[left] for operand in (s.Out, s.d_Out)
        )
        k.store(s.d_X, whole, upstream * X[whole] / k.where(norm > 0, norm, 1))


class Dist(OpDef, op="dist"):
    """Out = the p-norm of X - Y, which broadcast as in NumPy: a scalar, [1]."""

    X = reads()
    Y = reads()
    Out = writes()
    p = attr(2.0)
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_same_dtype(self.kind, X=X, Y=s.Y)
        broadcast(self.kind, [X.shape, s.Y.shape])
        return X.with_shape((1,))

    def numpy(self, X: Array, Y: Array) -> Array:
        return p_norm(X - Y, self.p, None).reshape(1)

    def grad(self, X: Array, Y: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        slope = d_Out * p_norm_slope(X - Y, Out, self.p)
        return {"X": sum_to_shape(slope, X.shape), "Y": -sum_to_shape(slope, Y.shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        whole, (one,) = broadcast(self.kind, [s.X.shape, s.Y.shape]), k.grid(1)
        r = k.loop(product(whole))
        k.store(
            s.Out, (one,), kernel_p_norm(k, difference_at(s.X, s.Y, k.unravel(r, whole)), self.p, r)
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        def slope(at: tuple[Number, ...]) -> Number:
            return (
                kernel_p_norm_slope(k, difference_at(s.X, s.Y, at), s.Out[0], self.p) * s.d_Out[0]
            )

        whole = broadcast(self.kind, [s.X.shape, s.Y.shape])
        if (d_X := s.get("d_X")) is not None:
            sum_to(k, whole, d_X, slope)
        if (d_Y := s.get("d_Y")) is not None:
            sum_to(k, whole, d_Y, lambda at: -slope(at))


def difference_at(X: DeviceOperand, Y: DeviceOperand, at: tuple[Number, ...]) -> Number:
    """Load an element of X - Y, which broadcast."""
    return X[broadcast_at(X.shape, at)] - Y[broadcast_at(Y.shape, at)]


class GlobalNorm(Whole):
    """A norm over all elements of X, [1]."""

    X = reads()
    Out = writes()
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape((1,))


class SquaredL2Norm(GlobalNorm, op="squared_l2_norm"):
    """Out = the sum of squares of X."""

    def numpy(self, X: Array) -> Array:
        flat = X.reshape(-1)
        return np.dot(flat, flat).reshape(1)

    def measure(self, xp: Xp, X: Value) -> dict[str, Value]:
        return {"squares": X * X}

    def compute(self, xp: Xp, squares: Value) -> Value:
        return squares

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.X.shape)
        k.store(s.d_X, indices, s.X[indices] * (s.d_Out[0] * 2.0))

    def grad(self, X: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": X * (d_Out * 2)}


class L1Norm(GlobalNorm, op="l1_norm"):
    """Out = the sum of |X|."""

    def numpy(self, X: Array) -> Array:
        return np.abs(X).sum().reshape(1)

    def measure(self, xp: Xp, X: Value) -> dict[str, Value]:
        return {"sizes": xp.absolute(X)}

    def compute(self, xp: Xp, sizes: Value) -> Value:
        return sizes

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.X.shape)
        k.store(s.d_X, indices, k.sign(s.X[indices]) * s.d_Out[0])

    def grad(self, X: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": np.sign(X) * d_Out}
