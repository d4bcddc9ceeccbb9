"""Squared distances between corresponding rows of two tensors; the second may have one row.

Reference: squared_l2_distance_op.h.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.math.cos_sim import check_rows, row_size, sum_rows_kernel


class SquaredL2Distance(OpDef, op="squared_l2_distance"):
    """Out [rows, 1] = the squared L2 distance between rows of X and Y, which may have one row.

    `sub_result` [rows, row size] is X - Y, for the gradient.
    """

    X = reads()
    Y = reads()
    sub_result = writes()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        check_rows(self.kind, X, s.Y)
        rows = X.shape[0]
        return {"sub_result": X.with_shape((rows, row_size(X))), "Out": X.with_shape((rows, 1))}

    def numpy(self, X: Array, Y: Array) -> dict[str, Array]:
        width = int(np.prod(X.shape[1:]))
        difference = X.reshape(X.shape[0], width) - Y.reshape(Y.shape[0], width)
        return {
            "sub_result": difference,
            "Out": np.sum(difference * difference, axis=1, keepdims=True),
        }

    def grad(self, X: Array, Y: Array, sub_result: Array, d_Out: Array) -> dict[str, Array]:
        slope = sub_result * (d_Out * 2)
        by_y = -slope if len(Y) == len(X) else -slope.sum(axis=0)
        return {"X": slope.reshape(X.shape), "Y": by_y.reshape(Y.shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.X, s.Y
        rows, width = X.shape[0], row_size(X.type)
        (i,) = k.grid(rows)
        r, mine = k.loop(width), k.mod(i, k.size(Y.shape[0]))
        between = X.reshaped((rows, width))[i, r] - Y.reshaped((Y.shape[0], width))[mine, r]
        if (sub_result := s.get("sub_result")) is not None:
            k.store(sub_result, (i, r), between)
        if (Out := s.get("Out")) is not None:
            k.store(Out, (i, 0), k.sum(between * between, r))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        def slope(i: Number, c: Number) -> Number:
            return s.sub_result[i, c] * (s.d_Out[i, 0] * 2.0)

        rows = s.sub_result.shape[0]
        if (d_X := s.get("d_X")) is not None:
            sum_rows_kernel(k, rows, d_X, slope)
        if (d_Y := s.get("d_Y")) is not None:
            sum_rows_kernel(k, rows, d_Y, lambda i, c: -slope(i, c))
