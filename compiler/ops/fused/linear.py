"""A fully connected layer as one op, whose gradients the compiler makes of those of two ops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.libraries import MatrixProduct
from compiler.ir.opdef import Slots, Types, reads
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Operand, SourceBuilder
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.matmul import FlatProduct, as_matrix, flat_gradients, flat_product
from compiler.ops.type_checks import differ, require_same_dtype, shown


class Linear(FlatProduct, op="linear"):
    """Out = X @ Y + Bias; X and Y are flattened to matrices as by `mul`.

    Bias has an element per column of Y. On a GPU, its gradient, the sum of Out's over rows, is
    computed by the kernel of Y's. Programs do not name this op; the pass `merge_bias_gradients`
    makes its gradient.
    """

    linear_in = ()
    epilogue = ""

    Bias = reads()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Y, Bias = s.Y, s.Bias
        Out = super().infer(s)
        require_same_dtype(self.kind, Y=Y, Bias=Bias)
        if differ(Bias.numel, product(Y.shape[self.y_num_col_dims :])):
            raise ShapeError(f"{self.kind}: {shown(Y=Y, Bias=Bias)} do not fit")
        return Out

    def matrix_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return none: Out has a bias."""
        return {}

    def gradient_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return the gradients of X and Y; the kernel of the latter computes that of Bias."""
        products = super().gradient_products(types)
        return products | {"Y": replace(products["Y"], sums="Bias")} if products else {}

    def numpy(self, X: Array, Y: Array, Bias: Array) -> Array:
        out = flat_product(X, Y, self.x_num_col_dims, self.y_num_col_dims)
        return out + Bias.reshape(Y.shape[self.y_num_col_dims :])

    def grad(self, X: Array, Y: Array, Bias: Shape, d_Out: Array) -> dict[str, Array]:
        gradients = flat_gradients(X, Y, d_Out, self.x_num_col_dims, self.y_num_col_dims)
        by_bias = np.sum(as_matrix(d_Out, self.x_num_col_dims), 0)
        return {**gradients, "Bias": by_bias.reshape(Bias)}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        super().lower(k, s)
        out = s.Out.view(self.views(s.X.shape, s.Y.shape)["Out"])
        k.line(f"np.add({out}, {s.Bias.view((s.Bias.type.numel,))}, out={out})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        super().lower_grad(k, s)
        if (d_Bias := s.get("d_Bias")) is not None:
            rows = s.d_Out.view(self.views(s.X.shape, s.Y.shape)["Out"])
            k.line(f"np.add.reduce({rows}, axis=0, out={d_Bias.view((d_Bias.type.numel,))})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        super().kernel(k, s)
        table = self.views(s.X.shape, s.Y.shape)["Out"]
        out, bias = s.Out.reshaped(table), s.Bias.reshaped(table[1:])
        i, j = k.grid(*table)
        k.store(out, (i, j), out[i, j] + bias[j])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        """Emit the product for X, then the one for Y, which also sums the columns of d_Out."""
        views = self.views(s.X.shape, s.Y.shape)
        x, y = s.X.reshaped(views["X"]), s.Y.reshaped(views["Y"])
        upstream = s.d_Out.reshaped(views["Out"])
        d_X, d_Y, d_Bias = s.get("d_X"), s.get("d_Y"), s.get("d_Bias")
        sums = None if d_Bias is None else d_Bias.reshaped(views["Out"][1:])
        if d_X is not None:
            k.matmul(d_X.reshaped(views["X"]), upstream, y, transposed=(False, True))
        if d_Y is not None:
            by_y = d_Y.reshaped(views["Y"])
            k.matmul(by_y, x, upstream, transposed=(True, False), column_sums=sums)
        elif sums is not None:
            (j,) = k.grid(views["Out"][1])
            i = k.loop(views["Out"][0])
            k.store(sums, (j,), k.sum(upstream[i, j], i))
