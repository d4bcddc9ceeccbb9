"""fsp: the Gram matrix between the feature maps of two layers."""

from __future__ import annotations

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.image.layouts import flat_image_shape, require_images
from compiler.ops.type_checks import differ, require_same_dtype, shown


class Fsp(OpDef, op="fsp"):
    """Out[n, i, j] = the mean over positions of X[n, i] * Y[n, j]: flow of solution procedure.

    X is [N, Cx, H, W] and Y [N, Cy, H, W]. Reference: fsp_op.h.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_images(self.kind, "X", X)
        require_images(self.kind, "Y", Y)
        require_same_dtype(self.kind, X=X, Y=Y)
        if any(differ(X.shape[axis], Y.shape[axis]) for axis in (0, 2, 3)):
            raise ShapeError(f"fsp: {shown(X=X, Y=Y)} may differ only in their channels")
        return X.with_shape((X.shape[0], X.shape[1], Y.shape[1]))

    def numpy(self, X: Array, Y: Array) -> Array:
        positions = X.shape[2] * X.shape[3]
        x, y = (array.reshape(*array.shape[:2], positions) for array in (X, Y))
        return x @ y.mT / x.dtype.type(x.shape[2])

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        positions = X.shape[2] * X.shape[3]
        x, y = (array.reshape(*array.shape[:2], positions) for array in (X, Y))
        share = d_Out / x.dtype.type(x.shape[2])
        return {"X": (share @ y).reshape(X.shape), "Y": (share.mT @ x).reshape(Y.shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        x, y, positions = (
            *(operand.reshaped(flat_image_shape(operand.shape)) for operand in (X, s.Y)),
            X.shape[2:],
        )
        (n,), i, j, left, right = k.tiles(
            s.Out.shape[:1], X.shape[1], s.Y.shape[1], product(positions)
        )
        share = k.astype(k.size(product(positions)), X.type.dtype)
        k.store(s.Out, (n, i, j), k.contract(x[n, i, left], y[n, j, right]) / share)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        for other, result, is_transposed in ((s.Y, s.get("d_X"), False), (s.X, s.get("d_Y"), True)):
            if result is None:
                continue
            table, rest = (
                flat_image_shape(result.shape),
                other.reshaped(flat_image_shape(other.shape)),
            )
            (n,), c, p, left, right = k.tiles(table[:1], *table[1:], other.shape[1])
            upstream = s.d_Out[n, left, c] if is_transposed else s.d_Out[n, c, left]
            share = k.astype(k.size(table[2]), result.type.dtype)
            k.store(
                result.reshaped(table), (n, c, p), k.contract(upstream, rest[n, right, p]) / share
            )
