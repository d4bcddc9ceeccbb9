"""Batched matrix products: `bmm`, and Paddle 2's `matmul_v2` with broadcast batch axes."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Slots, attr, broadcast
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.matmul import (
    Product,
    Views,
    flatten_batches,
    product_gradients,
    transpose_if,
)
from compiler.ops.type_checks import differ, require_same_dtype, shown


class Bmm(Product, op="bmm"):
    """Out[n] = X[n] @ Y[n]. Reference: bmm_op.h."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype("bmm", X=X, Y=Y)
        pairs = [(X.shape[0], Y.shape[0]), (X.shape[-1], Y.shape[-2 % Y.rank])]
        if X.rank != 3 or Y.rank != 3 or any(differ(a, b) for a, b in pairs):
            raise ShapeError(f"bmm: {shown(X=X, Y=Y)}, expected [n, i, j] and [n, j, k]")
        return X.with_shape((*X.shape[:2], Y.shape[2]))

    def views(self, X: Shape, Y: Shape) -> Views:
        """Return the shapes unchanged."""
        return {"X": X, "Y": Y, "Out": (*X[:2], Y[2])}

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.matmul(X, Y)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        by_x, by_y = product_gradients(X, Y, d_Out, False, False)
        return {"X": by_x, "Y": by_y}


class MatmulV2(Product, op="matmul_v2"):
    """Out = X @ Y as in NumPy, with optional transposes of the last two axes of X and Y.

    Batch axes broadcast; vectors are not transposed. Paddle 2 op.
    """

    trans_x = attr(False)
    trans_y = attr(False)

    def options(self) -> tuple[bool, bool, float]:
        """Return the options from the attributes."""
        return self.trans_x, self.trans_y, 1.0

    def matrices(self, X: Shape, Y: Shape) -> tuple[Shape, Shape]:
        """Return shapes of rank 2 or more: a vector becomes a row or column, by its flag."""
        x = X if len(X) > 1 else matrix_shape(X, self.trans_x)
        return x, Y if len(Y) > 1 else matrix_shape(Y, not self.trans_y)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype("matmul_v2", X=X, Y=Y)
        x, y = self.matrices(X.shape, Y.shape)
        rows, inner = x[-2:][::-1] if self.trans_x else x[-2:]
        depth, columns = y[-2:][::-1] if self.trans_y else y[-2:]
        if differ(inner, depth):
            asked = f"trans_x={self.trans_x}, trans_y={self.trans_y}"
            raise ShapeError(f"matmul_v2: {shown(X=X, Y=Y)} do not fit with {asked}")
        stack = broadcast("matmul_v2", [x[:-2], y[:-2]])
        result_axes = (rows,) * (X.rank > 1) + (columns,) * (Y.rank > 1)
        return X.with_shape((*stack, *result_axes) or (1,))

    def views(self, X: Shape, Y: Shape) -> Views:
        """Return flattened batches if none broadcasts, else shapes padded with leading 1s."""
        x, y = self.matrices(X, Y)
        if x[:-2] == y[:-2] or len(x) == 2 or len(y) == 2:
            return flatten_batches(x, y, self.trans_x, self.trans_y)
        rank = max(len(x), len(y))
        x, y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
        out = x[-1 if self.trans_x else -2], y[-2 if self.trans_y else -1]
        return {"X": x, "Y": y, "Out": (*broadcast("matmul_v2", [x[:-2], y[:-2]]), *out)}

    def numpy(self, X: Array, Y: Array) -> Array:
        x, y = (
            transpose_if(X, self.trans_x and X.ndim > 1),
            transpose_if(Y, self.trans_y and Y.ndim > 1),
        )
        return np.atleast_1d(np.matmul(x, y))

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        x, y = as_matrices(X, self.trans_x), as_matrices(Y, not self.trans_y)
        by_x, by_y = product_gradients(x, y, d_Out, self.trans_x, self.trans_y)
        return {"X": by_x.reshape(X.shape), "Y": by_y.reshape(Y.shape)}


def matrix_shape(vector: Shape, column: bool) -> Shape:
    """Return the shape of a vector as a column or as a row.

    >>> matrix_shape((3,), True), matrix_shape((3,), False)
    ((3, 1), (1, 3))
    """
    return (*vector, 1) if column else (1, *vector)


def as_matrices(array: Array, column: bool) -> Array:
    """Expand a vector to a column or a row; return other arrays unchanged."""
    return array if array.ndim > 1 else np.expand_dims(array, -1 if column else 0)
