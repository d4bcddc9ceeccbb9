"""Cosines between corresponding rows of two tensors; the second may have one row.

Reference: cos_sim_op.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.math.reduce import sum_to_shape
from compiler.ops.type_checks import differ, require_same_dtype, shown


def check_rows(op: str, X: TensorType, Y: TensorType) -> None:
    """Raise ShapeError unless Y has as many rows as X, or one, of equal row size."""
    require_same_dtype(op, X=X, Y=Y)
    rows_fit = Y.shape[0] == 1 or not differ(X.shape[0], Y.shape[0])
    if X.rank != Y.rank or X.rank < 2 or not rows_fit or differ(row_size(X), row_size(Y)):
        raise ShapeError(
            f"{op}: {shown(X=X, Y=Y)}, expected equal row sizes, equally many rows or one of Y"
        )


def row_size(X: TensorType) -> Any:
    """Return the number of elements of a row."""
    return product(X.shape[1:])


def sum_rows_kernel(
    k: KernelBuilder, rows: Size, out: DeviceOperand, value: Callable[[Number, Number], Number]
) -> None:
    """Emit a kernel for out = the value of each row, summed over rows if out has only one row."""
    count, width = out.shape[0], product(out.shape[1:])
    j, c = k.grid(count, width)
    loop = k.loop(1 if count == 0 else rows // count)
    total = k.sum(value(loop * k.size(count) + j, c), loop)
    k.store(out.reshaped((count, width)), (j, c), total)


def row_norms(rows: Array) -> Array:
    """Return the L2 norm of each row, at least 1e-4, as a column."""
    return np.maximum(np.sqrt(np.sum(rows * rows, axis=1, keepdims=True)), rows.dtype.type(1e-4))


class CosSim(OpDef, op="cos_sim"):
    """Out [rows, 1] = the cosine similarity of each row of X and its row of Y.

    Y may have one row for all. XNorm and YNorm are the row norms, for the gradient.
    """

    X = reads()
    Y = reads()
    Out = writes()
    XNorm = writes(shares_lod=False)
    YNorm = writes(shares_lod=False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        check_rows(self.kind, X, s.Y)
        column, other = X.with_shape((X.shape[0], 1)), X.with_shape((s.Y.shape[0], 1))
        return {"Out": column, "XNorm": column, "YNorm": other}

    def numpy(self, X: Array, Y: Array) -> dict[str, Array]:
        width = int(np.prod(X.shape[1:]))
        x, y = X.reshape(X.shape[0], width), Y.reshape(Y.shape[0], width)
        x_norm, y_norm = row_norms(x), row_norms(y)
        along = np.sum(x * y, axis=1, keepdims=True) / (x_norm * y_norm)
        return {"Out": along, "XNorm": x_norm, "YNorm": y_norm}

    def grad(
        self, X: Array, Y: Array, Out: Array, XNorm: Array, YNorm: Array, d_Out: Array
    ) -> dict[str, Array]:
        width = int(np.prod(X.shape[1:]))
        x, y = X.reshape(X.shape[0], width), Y.reshape(Y.shape[0], width)
        both = XNorm * YNorm
        by_x = d_Out * (y / both - x * (Out / (XNorm * XNorm)))
        by_y = d_Out * (x / both - y * (Out / (YNorm * YNorm)))
        return {"X": by_x.reshape(X.shape), "Y": sum_to_shape(by_y, y.shape).reshape(Y.shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.X, s.Y
        YNorm = s.get("YNorm")
        rows, width = X.shape[0], product(X.shape[1:])
        (i,) = k.grid(rows)
        r, mine = k.loop(width), k.mod(i, k.size(Y.shape[0]))
        x, y = X.reshaped((rows, width))[i, r], Y.reshaped((Y.shape[0], width))[mine, r]
        x_norm, y_norm = (
            k.maximum(k.sqrt(k.sum(operand * operand, r)), 1e-4) for operand in (x, y)
        )
        k.store(s.Out, (i, 0), k.sum(x * y, r) / (x_norm * y_norm))
        if (XNorm := s.get("XNorm")) is not None:
            k.store(XNorm, (i, 0), x_norm)
        if YNorm is not None and Y.shape[0] == rows:
            k.store(YNorm, (i, 0), y_norm)
        elif YNorm is not None:
            self.norm_of_one(k, Y, YNorm)

    def norm_of_one(self, k: KernelBuilder, Y: DeviceOperand, YNorm: DeviceOperand) -> None:
        """Emit a kernel for the norm of Y's only row, which X may have no rows to compare with."""
        width = product(Y.shape[1:])
        (i,) = k.grid(Y.shape[0])
        r = k.loop(width)
        y = Y.reshaped((Y.shape[0], width))[i, r]
        k.store(YNorm, (i, 0), k.maximum(k.sqrt(k.sum(y * y, r)), 1e-4))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.X, s.Y
        rows, width = X.shape[0], product(X.shape[1:])
        tables = X.reshaped((rows, width)), Y.reshaped((Y.shape[0], width))

        def slope(i: Number, c: Number, of_x: bool) -> Number:
            at = i, k.mod(i, k.size(Y.shape[0]))
            own, other = (0, 1) if of_x else (1, 0)
            norms = s.XNorm[at[0], 0], s.YNorm[at[1], 0]
            along = s.Out[i, 0] / (norms[own] * norms[own])
            straight = tables[other][at[other], c] / (norms[0] * norms[1])
            return s.d_Out[i, 0] * (straight - tables[own][at[own], c] * along)

        if (d_X := s.get("d_X")) is not None:
            sum_rows_kernel(k, rows, d_X, lambda i, c: slope(i, c, True))
        if (d_Y := s.get("d_Y")) is not None:
            sum_rows_kernel(k, rows, d_Y, lambda i, c: slope(i, c, False))
