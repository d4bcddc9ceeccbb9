"""`spectral_norm`: weights divided by their largest singular value, found by power iteration."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import require_same_shape


def power_iteration(matrix: Array, u: Array, v: Array, steps: int, eps: float) -> tuple[Array, ...]:
    """Singular vectors after some steps from u [rows] and v [columns], and their singular value."""
    u, v = u.reshape(-1), v.reshape(-1)
    for _ in range(steps):
        v = matrix.T @ u
        v = v / (np.sqrt((v * v).sum()) + eps)
        u = matrix @ v
        u = u / (np.sqrt((u * u).sum()) + eps)
    return u, v, u @ matrix @ v


class SpectralNorm(OpDef, op="spectral_norm"):
    """Out = Weight / σ, the largest singular value of Weight as a matrix with axis `dim` as rows.

    `power_iters` steps of power iteration from U [rows] and V [columns] find it. The gradient takes
    the singular vectors for constants: d_Weight = (d_Out - Σ(d_Out * Out) u vᵀ) / σ. The reference
    has no sum there, and multiplies element by element (spectral_norm_op.h).
    """

    Weight = reads()
    U = reads(no_grad=True)
    V = reads(no_grad=True)
    Out = writes()
    dim = attr(0)
    power_iters = attr(1)
    eps = attr(1e-12)

    def infer(self, Weight: TensorType, U: TensorType, V: TensorType) -> TensorType:
        if self.dim not in (0, 1) or self.dim >= Weight.rank:
            raise BadAttribute(f"spectral_norm: dim is {self.dim}, expected 0 or 1 of {Weight}")
        if self.power_iters < 0:
            raise BadAttribute(f"spectral_norm: power_iters is {self.power_iters}, expected 0 up")
        rows = Weight.shape[self.dim]
        columns = product(size for axis, size in enumerate(Weight.shape) if axis != self.dim)
        require_same_shape(self.kind, U=U, rows=U.with_shape((rows,)))
        require_same_shape(self.kind, V=V, columns=V.with_shape((columns,)))
        return Weight

    def numpy(self, Weight: Array, U: Array, V: Array) -> Array:
        matrix = np.moveaxis(Weight, self.dim, 0).reshape(Weight.shape[self.dim], -1)
        return Weight / power_iteration(matrix, U, V, self.power_iters, self.eps)[2]

    def grad(self, Weight: Array, U: Array, V: Array, d_Out: Array) -> dict[str, Array]:
        turned = np.moveaxis(Weight, self.dim, 0)
        matrix = turned.reshape(len(turned), -1)
        above = np.moveaxis(d_Out, self.dim, 0).reshape(matrix.shape)
        u, v, sigma = power_iteration(matrix, U, V, self.power_iters, self.eps)
        made = (above - (above * matrix).sum() / sigma * np.outer(u, v)) / sigma
        return {"Weight": np.moveaxis(made.reshape(turned.shape), 0, self.dim)}
