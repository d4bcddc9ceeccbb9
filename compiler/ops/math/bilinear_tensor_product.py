"""`bilinear_tensor_product`: a bilinear form of two rows per output channel.

Products of three factors are computed as matrix products, with the outer product of two factors
formed on the fly. Reference: bilinear_tensor_product_op.h.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.math.reduce import sum_to
from compiler.ops.type_checks import differ, require_same_dtype, shown


class BilinearTensorProduct(OpDef, op="bilinear_tensor_product"):
    """Out[n, k] = X[n] @ Weight[k] @ Y[n] + Bias[0, k]."""

    X = reads()
    Y = reads()
    Weight = reads()
    Bias = reads(optional=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y, Weight = s.X, s.Y, s.Weight
        Bias = s.get("Bias")
        require_same_dtype(self.kind, X=X, Y=Y, Weight=Weight)
        shapes = shown(X=X, Y=Y, Weight=Weight)
        if (X.rank, Y.rank, Weight.rank) != (2, 2, 3) or differ(X.shape[0], Y.shape[0]):
            raise ShapeError(f"{self.kind}: {shapes}, expected [n, i], [n, j] and [k, i, j]")
        if differ(X.shape[1], Weight.shape[1]) or differ(Y.shape[1], Weight.shape[2]):
            raise ShapeError(f"{self.kind}: {shapes}, expected [n, i], [n, j] and [k, i, j]")
        if Bias is not None and differ(Bias.numel, Weight.shape[0]):
            raise ShapeError(f"{self.kind}: {shown(Weight=Weight, Bias=Bias)}, expected [1, k]")
        return X.with_shape((X.shape[0], Weight.shape[0]))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Weight = s.Weight
        bias = Weight.with_shape((1, Weight.shape[0]))
        return {"X": s.X, "Y": s.Y, "Weight": Weight, "Bias": bias}

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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        Bias = s.get("Bias")
        sizes = s.Weight.shape[1:]
        for operand, size in ((s.X, sizes[0]), (s.Y, sizes[1])):
            k.expect_size("columns", operand.shape[1], size)
        _, n, c, left, right = k.tiles((), Out.shape[0], Out.shape[1], product(sizes))
        i, j = k.unravel(left, sizes)
        total = k.contract(s.X[n, i] * s.Y[n, j], s.Weight[(c, *k.unravel(right, sizes))])
        k.store(Out, (n, c), total if Bias is None else total + Bias[0, c])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y, Weight, d_Out = s.X, s.Y, s.Weight, s.d_Out
        count, *sizes = Weight.shape
        if (d_X := s.get("d_X")) is not None:
            _, n, i, left, right = k.tiles((), X.shape[0], X.shape[1], product((count, sizes[1])))
            (c, j), (d, m) = (k.unravel(flat, (count, sizes[1])) for flat in (left, right))
            k.store(d_X, (n, i), k.contract(d_Out[n, c] * Y[n, j], Weight[d, i, m]))
        if (d_Y := s.get("d_Y")) is not None:
            _, n, j, left, right = k.tiles((), Y.shape[0], Y.shape[1], product((count, sizes[0])))
            (c, i), (d, m) = (k.unravel(flat, (count, sizes[0])) for flat in (left, right))
            k.store(d_Y, (n, j), k.contract(d_Out[n, c] * X[n, i], Weight[d, m, j]))
        if (d_Weight := s.get("d_Weight")) is not None:
            width = product(sizes)
            _, c, column, left, right = k.tiles((), count, width, X.shape[0])
            i, j = k.unravel(column, sizes)
            total = k.contract(d_Out[left, c], X[right, i] * Y[right, j])
            k.store(d_Weight.reshaped((count, width)), (c, column), total)
        if (d_Bias := s.get("d_Bias")) is not None:
            sum_to(k, d_Out.shape, d_Bias, lambda at: d_Out[at])
