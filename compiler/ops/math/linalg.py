"""Products of vectors and matrices beside plain multiplication, and traces.

Reference: dot_op.h, addmm_op.h, cross_op.h, kron_op.h, trace_op.h, bilinear_tensor_product_op.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.checks import differ, require_same_dtype, require_same_shape, shown
from compiler.ops.math.reduce import summed_to


class Dot(OpDef, op="dot"):
    """Out = the sum of X * Y along the last axis, of one or two; it stays with size 1."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_same_dtype(self.kind, X=X, Y=Y)
        require_same_shape(self.kind, X=X, Y=Y)
        if X.rank not in (1, 2):
            raise ShapeError(f"dot: {shown(X=X, Y=Y)}, expected one axis or two")
        return X.with_shape((*X.shape[:-1], 1))

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.sum(X * Y, axis=-1, keepdims=True, dtype=X.dtype)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out * Y, "Y": d_Out * X}


class Addmm(OpDef, op="addmm"):
    """Out = Beta * Input + Alpha * X @ Y for matrices; Input broadcasts to the product."""

    Input = reads()
    X = reads()
    Y = reads()
    Out = writes()
    Alpha = attr(1.0)
    Beta = attr(1.0)

    def infer(self, Input: TensorType, X: TensorType, Y: TensorType) -> TensorType:
        require_same_dtype(self.kind, Input=Input, X=X, Y=Y)
        given = shown(Input=Input, X=X, Y=Y)
        if (Input.rank, X.rank, Y.rank) != (2, 2, 2) or differ(X.shape[1], Y.shape[0]):
            raise ShapeError(f"addmm: {given}, expected matrices of which X and Y fit")
        product = (X.shape[0], Y.shape[1])
        if any(size != 1 and differ(size, n) for size, n in zip(Input.shape, product, strict=True)):
            raise ShapeError(f"addmm: {given}: Input does not broadcast to the product")
        return X.with_shape(product)

    def numpy(self, Input: Array, X: Array, Y: Array) -> Array:
        return Input * self.Beta + np.matmul(X, Y) * self.Alpha

    def grad(self, Input: Shape, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        scaled = d_Out * self.Alpha
        by_factors = {"X": np.matmul(scaled, Y.T), "Y": np.matmul(X.T, scaled)}
        return {"Input": summed_to(d_Out * self.Beta, Input)} | by_factors


class Cross(OpDef, op="cross"):
    """Out = the cross products of X and Y along the axis `dim`, which has size 3.

    By default that is the first axis of size 3.
    """

    X = reads()
    Y = reads()
    Out = writes()
    dim = attr(9)

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_same_dtype(self.kind, X=X, Y=Y)
        require_same_shape(self.kind, X=X, Y=Y)
        axes = range(X.rank) if self.dim == 9 else [self.dim]
        if not any(-X.rank <= a < X.rank and not differ(X.shape[a], 3) for a in axes):
            where = "some axis" if self.dim == 9 else f"axis {self.dim}"
            raise ShapeError(f"cross: X is {X}, expected size 3 along {where}")
        return X

    def numpy(self, X: Array, Y: Array) -> Array:
        return crossed(X, Y, vector_axis(X.shape, self.dim))

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        axis = vector_axis(X.shape, self.dim)
        return {"X": crossed(Y, d_Out, axis), "Y": crossed(d_Out, X, axis)}


def vector_axis(shape: Any, dim: int) -> int:
    """The axis that cross products are taken along: `dim`, or for 9 the first of size 3.

    Raises ValueError where no axis has that size.

    >>> vector_axis((2, 3, 3), 9), vector_axis((2, 3), -1)
    (1, -1)
    """
    if dim == 9 and 3 not in shape:
        raise ValueError(f"cross: no axis of X has size 3, its shape is {shape}")
    return shape.index(3) if dim == 9 else dim


def crossed(X: Array, Y: Array, axis: int) -> Array:
    """Cross products along an axis of size 3."""
    x, y = np.moveaxis(X, axis, 0), np.moveaxis(Y, axis, 0)
    parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    return np.stack(parts, axis)


class Kron(OpDef, op="kron"):
    """Out = the Kronecker product: X with each element replaced by that element times Y.

    The one with fewer axes gets more in front, of size 1.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_same_dtype(self.kind, X=X, Y=Y)
        rank = max(X.rank, Y.rank)
        x, y = (1,) * (rank - X.rank) + X.shape, (1,) * (rank - Y.rank) + Y.shape
        return X.with_shape([a * b for a, b in zip(x, y, strict=True)])

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.kron(X, Y)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        x, y = paired(X, Y.ndim, 1), paired(Y, X.ndim, 0)
        axes = [d // n for d, n in zip(d_Out.shape, y.shape[1::2], strict=True)]
        sizes = [size for pair in zip(axes, y.shape[1::2], strict=True) for size in pair]
        seen = d_Out.reshape(sizes)
        inner, outer = tuple(range(1, seen.ndim, 2)), tuple(range(0, seen.ndim, 2))
        by_x, by_y = np.sum(seen * y, axis=inner), np.sum(seen * x, axis=outer)
        return {"X": by_x.reshape(X.shape), "Y": by_y.reshape(Y.shape)}


def paired(X: Array, rank: int, after: int) -> Array:
    """X with each axis, of `rank` at least, split in two, of which one has size 1.

    >>> paired(np.zeros((2, 3)), 3, 1).shape
    (1, 1, 2, 1, 3, 1)
    """
    sizes = (1,) * (rank - X.ndim) + X.shape
    return X.reshape([n for size in sizes for n in ((size, 1) if after else (1, size))])


class Trace(OpDef, op="trace"):
    """Out = the sum along the diagonal of axes `dim1` and `dim2`, `offset` columns to the right.

    Columns are the later of both, whichever comes first. Both go; at least [1] stays.
    """

    Input = reads()
    Out = writes()
    offset = attr(0)
    dim1 = attr(-2)
    dim2 = attr(-1)

    def infer(self, Input: TensorType) -> TensorType:
        rank, axes = Input.rank, (self.dim1, self.dim2)
        if rank < 2 or any(not -rank <= axis < rank for axis in axes):
            raise ShapeError(f"trace: Input is {Input}, which has no axes {self.dim1}, {self.dim2}")
        gone = {axis % rank for axis in axes}
        if len(gone) == 1:
            raise ShapeError(f"trace: dim1 and dim2 are both axis {self.dim1} of Input {Input}")
        return Input.with_shape([n for a, n in enumerate(Input.shape) if a not in gone] or [1])

    def numpy(self, Input: Array) -> Array:
        rows, columns = plane(Input.ndim, self.dim1, self.dim2)
        total = np.trace(Input, self.offset, rows, columns, dtype=Input.dtype)
        return np.atleast_1d(total)

    def grad(self, Input: Shape, d_Out: Array) -> dict[str, Array]:
        axes = plane(len(Input), self.dim1, self.dim2)
        return {"Input": on_diagonal(d_Out, Input, self.offset, axes)}


def plane(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    """The axes of a diagonal, the earlier one first.

    >>> plane(3, -1, 0)
    (0, 2)
    """
    return min(dim1 % rank, dim2 % rank), max(dim1 % rank, dim2 % rank)


def on_diagonal(values: Array, shape: Any, offset: int, axes: tuple[int, int]) -> Array:
    """Zeros of a shape with one value along each diagonal of two axes."""
    whole: Array = np.zeros_like(values, shape=shape)
    seen: Array = np.moveaxis(whole, axes, (-2, -1))
    along: Array = np.arange(int(np.diagonal(seen, offset, -2, -1).shape[-1]))
    seen[..., along + max(-offset, 0), along + max(offset, 0)] = values.reshape(*seen.shape[:-2], 1)
    return whole


class BilinearTensorProduct(OpDef, op="bilinear_tensor_product"):
    """Out[n, k] = X[n] @ Weight[k] @ Y[n] + Bias[0, k]."""

    X = reads()
    Y = reads()
    Weight = reads()
    Bias = reads(optional=True)
    Out = writes()

    def infer(self, X: TensorType, Y: TensorType, Weight: TensorType) -> TensorType:
        require_same_dtype(self.kind, X=X, Y=Y, Weight=Weight)
        given = shown(X=X, Y=Y, Weight=Weight)
        if (X.rank, Y.rank, Weight.rank) != (2, 2, 3) or differ(X.shape[0], Y.shape[0]):
            raise ShapeError(f"{self.kind}: {given}, expected [n, i], [n, j] and [k, i, j]")
        if differ(X.shape[1], Weight.shape[1]) or differ(Y.shape[1], Weight.shape[2]):
            raise ShapeError(f"{self.kind}: {given}, expected [n, i], [n, j] and [k, i, j]")
        return X.with_shape((X.shape[0], Weight.shape[0]))

    def infer_grad(self, X: TensorType, Y: TensorType, Weight: TensorType) -> dict[str, TensorType]:
        bias = Weight.with_shape((1, Weight.shape[0]))
        return {"X": X, "Y": Y, "Weight": Weight, "Bias": bias}

    def numpy(self, X: Array, Y: Array, Weight: Array, Bias: Array | None) -> Array:
        half = np.tensordot(X, Weight, ([1], [1]))
        out = np.matmul(half, Y[:, :, None])[:, :, 0]
        return out if Bias is None else out + Bias

    def grad(self, X: Array, Y: Array, Weight: Array, d_Out: Array) -> dict[str, Array]:
        by_rows = np.tensordot(d_Out, Weight, ([1], [0]))
        outer = d_Out[:, :, None] * X[:, None, :]
        return {
            "X": np.matmul(by_rows, Y[:, :, None])[:, :, 0],
            "Y": np.matmul(X[:, None, :], by_rows)[:, 0, :],
            "Weight": np.tensordot(outer, Y, ([0], [0])),
            "Bias": np.sum(d_Out, axis=0, keepdims=True),
        }
