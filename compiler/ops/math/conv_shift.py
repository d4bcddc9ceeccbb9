"""`conv_shift`: circular correlation of rows. Reference: conv_shift_op.cc."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.type_checks import differ, require_same_dtype, shown


def correlation_indices(width: int, steps: int) -> Array:
    """Return the index [width, steps] into X that Out[i] multiplies with Y[j]."""
    return (np.arange(width)[:, None] + np.arange(steps) - (steps - 1) // 2) % width


class ConvShift(OpDef, op="conv_shift"):
    """Out[b, i] = sum over j of X[b, (i + j - (n - 1) / 2) mod m] * Y[b, j].

    X and Out are [batch, m], Y is [batch, n], n odd and at most m.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype("conv_shift", X=X, Y=Y)
        fits = X.rank == Y.rank == 2 and not differ(X.shape[0], Y.shape[0])
        sizes = [size for size in (X.shape + Y.shape)[1::2] if isinstance(size, int)]
        odd = not fits or not isinstance(Y.shape[1], int) or Y.shape[1] % 2 == 1
        if not fits or not odd or (len(sizes) == 2 and sizes[1] > sizes[0]):
            expected = "expected [batch, m] and [batch, n], n odd and at most m"
            raise ShapeError(f"conv_shift: {shown(X=X, Y=Y)} do not fit, {expected}")
        return X

    def numpy(self, X: Array, Y: Array) -> Array:
        windows = X[:, correlation_indices(X.shape[1], Y.shape[1])]
        return np.einsum("bij,bj->bi", windows, Y)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        indices = correlation_indices(X.shape[1], Y.shape[1])
        d_X = np.zeros_like(X)
        for step in range(Y.shape[1]):
            d_X[:, indices[:, step]] += d_Out * Y[:, step : step + 1]
        return {"X": d_X, "Y": np.einsum("bij,bi->bj", X[:, indices], d_Out)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        (batch, width), steps = s.X.shape, s.Y.shape[1]
        b, i = k.grid(batch, width)
        j = k.loop(steps)
        index = k.mod(i + j + k.size(width) - k.size((steps - 1) // 2), k.size(width))
        k.store(s.Out, (b, i), k.sum(s.X[b, index] * s.Y[b, j], j))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        (batch, width), steps = s.X.shape, s.Y.shape[1]
        if (d_X := s.get("d_X")) is not None:
            b, i = k.grid(batch, width)
            j = k.loop(steps)
            index = k.mod(i - j + k.size(width) + k.size((steps - 1) // 2), k.size(width))
            k.store(d_X, (b, i), k.sum(s.d_Out[b, index] * s.Y[b, j], j))
        if (d_Y := s.get("d_Y")) is not None:
            b, j = k.grid(batch, steps)
            i = k.loop(width)
            index = k.mod(i + j + k.size(width) - k.size((steps - 1) // 2), k.size(width))
            k.store(d_Y, (b, j), k.sum(s.X[b, index] * s.d_Out[b, i], i))
