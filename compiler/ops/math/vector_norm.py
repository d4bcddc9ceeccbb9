"""Norms of vectors and distances between them.

Reference: norm_op.h, p_norm_op.h, squared_l2_norm_op.h, squared_l2_distance_op.h, l1_norm_op.h,
dist_op.h, frobenius_norm_op.cc, cos_sim_op.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.kernel import DeviceOperand, Lanes
from compiler.ir.opdef import OpDef, attr, broadcast, reads, required, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import differ, require_same_dtype, shown
from compiler.ops.lanes import split_at
from compiler.ops.math.reduce import (
    AxisReduction,
    axes_of,
    fold_lanes,
    kept_shape,
    restored,
    summed_to,
)
from compiler.ops.math.sort import check_axis


class Norm(OpDef, op="norm"):
    """Out = X / Norm, where Norm = sqrt(sum(X²) + epsilon) along `axis`, which it keeps."""

    lod_like = ""

    X = reads()
    Norm = writes()
    Out = writes()
    axis = required(int)
    epsilon = attr(1e-10)
    is_test = attr(False)

    def infer(self, X: TensorType) -> dict[str, TensorType]:
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

    def triton(
        self, k: Lanes, X: DeviceOperand, Norm: DeviceOperand | None, Out: DeviceOperand | None
    ) -> None:
        whole = split_at(X.shape, self.axis % X.type.rank)
        i, j = k.lanes(whole[0], whole[2])
        r = k.loop(whole[1])
        x = X.seen_as(whole)[i, r, j]
        length = k.sqrt(k.sum(x * x, r) + self.epsilon)
        if Norm is not None:
            k.store(Norm.seen_as((whole[0], whole[2])), (i, j), length)
        if Out is not None:
            k.store(Out.seen_as(whole), (i, r, j), x / length)

    def triton_grad(
        self,
        k: Lanes,
        X: DeviceOperand,
        Norm: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        whole = split_at(X.shape, self.axis % X.type.rank)
        i, j = k.lanes(whole[0], whole[2])
        r = k.loop(whole[1])
        x, above = (each.seen_as(whole)[i, r, j] for each in (X, d_Out))
        length = Norm.seen_as((whole[0], whole[2]))[i, j]
        along = k.sum(x * above, r) / (length * length)
        k.store(d_X.seen_as(whole), (i, r, j), (above - x * along) / length)


# ---- p-norms -----------------------------------------------------------------------------------


def p_norm(X: Array, p: float, axis: Any) -> Array:
    """(sum(|X| ** p)) ** (1/p) over axes that stay; for 0 how many are not 0, for ±inf extremes."""
    size = np.abs(X)
    if p == 0.0:
        return np.sum(size != 0, axis=axis, keepdims=True).astype(X.dtype)
    if p in (np.inf, -np.inf):
        return (size.max if p > 0 else size.min)(axis=axis, keepdims=True)
    return np.asarray(np.sum(size**p, axis=axis, keepdims=True) ** (1.0 / p))


def p_norm_slope(X: Array, norm: Array, p: float) -> Array:
    """The derivative of a p-norm by each element of X; 0 where the element is 0."""
    if p == 0.0:
        return np.zeros_like(X)
    if p in (np.inf, -np.inf):
        return np.sign(X) * (np.abs(X) == norm)
    relative = np.abs(X) / np.where(norm == 0, 1, norm)
    return np.sign(X) * np.where(X == 0, 1, relative) ** (p - 1.0)


class PNorm(OpDef, op="p_norm"):
    """Out = the p-norm of X along `axis`, p being `porder`; of all of X with `asvector`.

    The axis goes unless `keepdim`. The reference has finite orders above 0 only, and no `asvector`;
    Paddle 2 has both.
    """

    X = reads()
    Out = writes()
    porder = attr(2.0)
    axis = attr(-1)
    epsilon = attr(1e-12)
    keepdim = attr(False)
    asvector = attr(False)

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.kind, X, self.axis)
        axes = range(X.rank) if self.asvector else [self.axis % X.rank]
        if self.keepdim:
            return X.with_shape([1 if a in axes else size for a, size in enumerate(X.shape)])
        return X.with_shape([size for a, size in enumerate(X.shape) if a not in axes] or [1])

    def numpy(self, X: Array) -> Array:
        axes = axes_of(X.ndim, [self.axis], self.asvector)
        norm = p_norm(X, self.porder, axes)
        return norm if self.keepdim else np.atleast_1d(np.squeeze(norm, axes))

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = axes_of(X.ndim, [self.axis], self.asvector)
        slope = p_norm_slope(X, restored(Out, X.shape, axes), self.porder)
        return {"X": restored(d_Out, X.shape, axes) * slope}

    def triton(self, k: Lanes, X: DeviceOperand, Out: DeviceOperand) -> None:
        axes, p = axes_of(X.type.rank, [self.axis], self.asvector), self.porder
        r, whole, left = fold_lanes(k, X.shape, axes)
        size = k.absolute(X[whole])
        if p == 0.0:
            norm = k.sum(k.where(size > 0, size * 0 + 1, size * 0), r)
        elif p in (np.inf, -np.inf):
            norm = k.max(size, r) if p > 0 else k.min(size, r)
        else:
            norm = k.power(k.sum(k.power(size, p), r), 1.0 / p)
        k.store(Out.seen_as(kept_shape(X.shape, axes)), left, norm)

    def triton_grad(
        self,
        k: Lanes,
        X: DeviceOperand,
        Out: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        axes, p = axes_of(X.type.rank, [self.axis], self.asvector), self.porder
        whole = k.lanes(*X.shape)
        left = tuple(0 if axis in axes else i for axis, i in enumerate(whole))
        norm, above = (each.seen_as(kept_shape(X.shape, axes))[left] for each in (Out, d_Out))
        x, size = X[whole], k.absolute(X[whole])
        if p == 0.0:
            slope = x * 0
        elif p in (np.inf, -np.inf):
            slope = k.where(k.equal(size, norm), k.sign(x), 0)
        else:
            relative = k.where(size > 0, size / k.where(norm > 0, norm, 1), 1)
            slope = k.sign(x) * k.power(relative, p - 1.0)
        k.store(d_X, whole, above * slope)


class FrobeniusNorm(AxisReduction, op="frobenius_norm"):
    """Out = the square root of the sum of squares over axes."""

    def numpy(self, X: Array) -> Array:
        axes = axes_of(X.ndim, self.dim, self.reduce_all)
        norm = np.sqrt(np.sum(X * X, axis=axes, keepdims=self.keep_dim))
        return np.atleast_1d(norm)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = axes_of(X.ndim, self.dim, self.reduce_all)
        slope = p_norm_slope(X, restored(Out, X.shape, axes), 2.0)
        return {"X": restored(d_Out, X.shape, axes) * slope}


class Dist(OpDef, op="dist"):
    """Out = the p-norm of X - Y, which broadcast as in NumPy: one number."""

    X = reads()
    Y = reads()
    Out = writes()
    p = attr(2.0)
    lod_like = ""

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_same_dtype(self.kind, X=X, Y=Y)
        broadcast(self.kind, [X.shape, Y.shape])
        return X.with_shape((1,))

    def numpy(self, X: Array, Y: Array) -> Array:
        return p_norm(X - Y, self.p, None).reshape(1)

    def grad(self, X: Array, Y: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        slope = d_Out * p_norm_slope(X - Y, Out, self.p)
        return {"X": summed_to(slope, X.shape), "Y": -summed_to(slope, Y.shape)}


class WholeNorm(OpDef):
    """One number made of all elements of X."""

    X = reads()
    Out = writes()
    lod_like = ""

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape((1,))


class SquaredL2Norm(WholeNorm, op="squared_l2_norm"):
    """Out = the sum of squares of X."""

    def numpy(self, X: Array) -> Array:
        flat = X.reshape(-1)
        return np.dot(flat, flat).reshape(1)

    def triton(self, k: Lanes, X: DeviceOperand, Out: DeviceOperand) -> None:
        (one,) = k.lanes(1)
        r = k.loop(X.type.numel)
        x = X.seen_as((X.type.numel,))[r]
        k.store(Out, (one,), k.sum(x * x, r))

    def triton_grad(
        self, k: Lanes, X: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        indices = k.lanes(*X.shape)
        k.store(d_X, indices, X[indices] * (d_Out[0] * 2.0))

    def grad(self, X: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": X * (d_Out * 2)}


class L1Norm(WholeNorm, op="l1_norm"):
    """Out = the sum of |X|."""

    def numpy(self, X: Array) -> Array:
        return np.abs(X).sum().reshape(1)

    def triton(self, k: Lanes, X: DeviceOperand, Out: DeviceOperand) -> None:
        (one,) = k.lanes(1)
        r = k.loop(X.type.numel)
        k.store(Out, (one,), k.sum(k.absolute(X.seen_as((X.type.numel,))[r]), r))

    def triton_grad(
        self, k: Lanes, X: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        indices = k.lanes(*X.shape)
        k.store(d_X, indices, k.sign(X[indices]) * d_Out[0])

    def grad(self, X: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": np.sign(X) * d_Out}


# ---- pairs of rows -----------------------------------------------------------------------------


def check_rows(op: str, X: TensorType, Y: TensorType) -> None:
    """ShapeError unless Y has as many rows as X, or one, of as many elements."""
    require_same_dtype(op, X=X, Y=Y)
    rows_fit = Y.shape[0] == 1 or not differ(X.shape[0], Y.shape[0])
    if X.rank != Y.rank or X.rank < 2 or not rows_fit or differ(_row(X), _row(Y)):
        raise ShapeError(f"{op}: {shown(X=X, Y=Y)}, expected rows of one size, one row of Y or all")


def _row(X: TensorType) -> Any:
    return product(X.shape[1:])


class SquaredL2Distance(OpDef, op="squared_l2_distance"):
    """Out [rows, 1] = the squared distance of each row of X from its row of Y, or the only one.

    `sub_result` [rows, size of a row] is X - Y, for the gradient.
    """

    X = reads()
    Y = reads()
    sub_result = writes()
    Out = writes()

    def infer(self, X: TensorType, Y: TensorType) -> dict[str, TensorType]:
        check_rows(self.kind, X, Y)
        rows = X.shape[0]
        return {"sub_result": X.with_shape((rows, _row(X))), "Out": X.with_shape((rows, 1))}

    def numpy(self, X: Array, Y: Array) -> dict[str, Array]:
        apart = X.reshape(X.shape[0], -1) - Y.reshape(Y.shape[0], -1)
        return {"sub_result": apart, "Out": np.sum(apart * apart, axis=1, keepdims=True)}

    def grad(self, X: Array, Y: Array, sub_result: Array, d_Out: Array) -> dict[str, Array]:
        slope = sub_result * (d_Out * 2)
        by_y = -slope if len(Y) == len(X) else -slope.sum(axis=0)
        return {"X": slope.reshape(X.shape), "Y": by_y.reshape(Y.shape)}


def row_norms(rows: Array) -> Array:
    """The length of each row, never less than 1e-4, in a column."""
    return np.maximum(np.sqrt(np.sum(rows * rows, axis=1, keepdims=True)), rows.dtype.type(1e-4))


class CosSim(OpDef, op="cos_sim"):
    """Out [rows, 1] = the cosine of the angle between each row of X and its row of Y.

    Y may have one row for all. XNorm and YNorm are the lengths of rows, for the gradient.
    """

    X = reads()
    Y = reads()
    Out = writes()
    XNorm = writes()
    YNorm = writes()

    def infer(self, X: TensorType, Y: TensorType) -> dict[str, TensorType]:
        check_rows(self.kind, X, Y)
        column, other = X.with_shape((X.shape[0], 1)), X.with_shape((Y.shape[0], 1))
        return {"Out": column, "XNorm": column, "YNorm": other}

    def numpy(self, X: Array, Y: Array) -> dict[str, Array]:
        x, y = X.reshape(X.shape[0], -1), Y.reshape(Y.shape[0], -1)
        x_norm, y_norm = row_norms(x), row_norms(y)
        along = np.sum(x * y, axis=1, keepdims=True) / (x_norm * y_norm)
        return {"Out": along, "XNorm": x_norm, "YNorm": y_norm}

    def grad(
        self, X: Array, Y: Array, Out: Array, XNorm: Array, YNorm: Array, d_Out: Array
    ) -> dict[str, Array]:
        x, y = X.reshape(X.shape[0], -1), Y.reshape(Y.shape[0], -1)
        both = XNorm * YNorm
        by_x = d_Out * (y / both - x * (Out / (XNorm * XNorm)))
        by_y = d_Out * (x / both - y * (Out / (YNorm * YNorm)))
        return {"X": by_x.reshape(X.shape), "Y": summed_to(by_y, y.shape).reshape(Y.shape)}

    def triton(
        self,
        k: Lanes,
        X: DeviceOperand,
        Y: DeviceOperand,
        Out: DeviceOperand,
        XNorm: DeviceOperand | None,
        YNorm: DeviceOperand | None,
    ) -> None:
        rows, width = X.shape[0], product(X.shape[1:])
        (i,) = k.lanes(rows)
        r, mine = k.loop(width), k.mod(i, k.size(Y.shape[0]))
        x, y = X.seen_as((rows, width))[i, r], Y.seen_as((Y.shape[0], width))[mine, r]
        x_norm, y_norm = (k.maximum(k.sqrt(k.sum(each * each, r)), 1e-4) for each in (x, y))
        k.store(Out, (i, 0), k.sum(x * y, r) / (x_norm * y_norm))
        if XNorm is not None:
            k.store(XNorm, (i, 0), x_norm)
        if YNorm is not None:
            k.store(YNorm, (mine, 0), y_norm, i < k.size(Y.shape[0]))
