"""`spectral_norm`: weights divided by their largest singular value, from power iteration."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.math.matmul import as_matrix
from compiler.ops.shared_kernels import split_at
from compiler.ops.type_checks import require_same_shape


def power_iteration(matrix: Array, u: Array, v: Array, steps: int, eps: float) -> tuple[Array, ...]:
    """Iterate `steps` times from u [rows] and v [columns]; return both and the singular value."""
    u, v = u.reshape(-1), v.reshape(-1)
    for _ in range(steps):
        v = matrix.T @ u
        v = v / (np.sqrt((v * v).sum()) + eps)
        u = matrix @ v
        u = u / (np.sqrt((u * u).sum()) + eps)
    return u, v, u @ matrix @ v


MAX_STEPS = 1000
"""Maximum number of power iterations per op: each is unrolled into separate kernels."""


class SpectralNorm(OpDef, op="spectral_norm"):
    """Out = Weight / σ, the largest singular value of Weight as a matrix with axis `dim` as rows.

    σ is computed by `power_iters` steps of power iteration from U [rows] and V [columns]. The
    gradient treats the singular vectors as constants: d_Weight = (d_Out - Σ(d_Out * Out) u vᵀ) / σ.
    The reference has no sum there, and multiplies element by element (spectral_norm_op.h).
    """

    Weight = reads()
    U = reads(no_grad=True)
    V = reads(no_grad=True)
    Out = writes()
    dim = attr(0)
    power_iters = attr(1, between(0, MAX_STEPS))
    eps = attr(1e-12)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Weight = s.Weight
        if self.dim not in (0, 1) or self.dim >= Weight.rank:
            raise BadAttribute(f"spectral_norm: dim is {self.dim}, expected 0 or 1 of {Weight}")
        rows = Weight.shape[self.dim]
        columns = product(size for axis, size in enumerate(Weight.shape) if axis != self.dim)
        require_same_shape(self.kind, U=s.U, rows=s.U.with_shape((rows,)))
        require_same_shape(self.kind, V=s.V, columns=s.V.with_shape((columns,)))
        return Weight

    def numpy(self, Weight: Array, U: Array, V: Array) -> Array:
        matrix = as_matrix(np.moveaxis(Weight, self.dim, 0), 1)
        return Weight / power_iteration(matrix, U, V, self.power_iters, self.eps)[2]

    def grad(self, Weight: Array, U: Array, V: Array, d_Out: Array) -> dict[str, Array]:
        permuted = np.moveaxis(Weight, self.dim, 0)
        matrix = as_matrix(permuted, 1)
        upstream = np.moveaxis(d_Out, self.dim, 0).reshape(matrix.shape)
        u, v, sigma = power_iteration(matrix, U, V, self.power_iters, self.eps)
        result = (upstream - (upstream * matrix).sum() / sigma * np.outer(u, v)) / sigma
        return {"Weight": np.moveaxis(result.reshape(permuted.shape), 0, self.dim)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Weight = s.Weight
        sigma = self.iterate(k, Weight, s.U, s.V)[2]
        at = k.grid(*Weight.shape)
        k.store(s.Out, at, Weight[at] / sigma[0])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        Weight = s.Weight
        u, v, sigma = self.iterate(k, Weight, s.U, s.V)
        split = split_at(Weight.shape, self.dim)
        along = k.scratch((split[1],), Weight.type.dtype)
        (row,) = k.grid(split[1])
        r = k.loop(product((split[0], split[2])))
        at = self.at(k, Weight, row, r)
        k.store(along, (row,), k.sum(s.d_Out.reshaped(split)[at] * Weight.reshaped(split)[at], r))
        total = vector_sum(k, along)
        i, row, j = k.grid(*split)
        outer = u[row] * v[i * k.size(split[2]) + j] * total[0] / sigma[0]
        result = (s.d_Out.reshaped(split)[i, row, j] - outer) / sigma[0]
        k.store(s.d_Weight.reshaped(split), (i, row, j), result)

    def at(
        self, k: KernelBuilder, Weight: DeviceOperand, row: Number, column: Number
    ) -> tuple[Number, Number, Number]:
        """Return the index of a matrix element in the shape returned by `split_at`."""
        trailing = k.size(split_at(Weight.shape, self.dim)[2])
        return k.div(column, trailing), row, k.mod(column, trailing)

    def iterate(
        self, k: KernelBuilder, Weight: DeviceOperand, U: DeviceOperand, V: DeviceOperand
    ) -> tuple[DeviceOperand, DeviceOperand, DeviceOperand]:
        """Emit kernels for `power_iteration`."""
        split, u, v = split_at(Weight.shape, self.dim), U, V
        rows, columns, matrix = split[1], product((split[0], split[2])), Weight.reshaped(split)
        for _ in range(self.power_iters):
            permuted = k.scratch((columns,), Weight.type.dtype)
            (c,) = k.grid(columns)
            r = k.loop(rows)
            k.store(permuted, (c,), k.sum(matrix[self.at(k, Weight, r, c)] * u[r], r))
            v = unit(k, permuted, self.eps)
            u = unit(k, self.times(k, Weight, v), self.eps)
        product_v, sigma = self.times(k, Weight, v), k.scratch((1,), Weight.type.dtype)
        (one,) = k.grid(1)
        r = k.loop(rows)
        k.store(sigma, (one,), k.sum(product_v[r] * u[r], r))
        return u, v, sigma

    def times(self, k: KernelBuilder, Weight: DeviceOperand, v: DeviceOperand) -> DeviceOperand:
        """Emit a kernel for the matrix times a vector."""
        split = split_at(Weight.shape, self.dim)
        result = k.scratch((split[1],), Weight.type.dtype)
        (row,) = k.grid(split[1])
        r = k.loop(product((split[0], split[2])))
        product_of = Weight.reshaped(split)[self.at(k, Weight, row, r)] * v[r]
        k.store(result, (row,), k.sum(product_of, r))
        return result


def unit(k: KernelBuilder, vector: DeviceOperand, eps: float) -> DeviceOperand:
    """Emit a kernel for a vector divided by its length."""
    result = k.scratch(vector.shape, vector.type.dtype)
    k.grid(1)
    r = k.loop(vector.shape[0])
    length = k.sqrt(k.sum(vector[r] * vector[r], r)) + eps
    k.store(result, (r,), vector[r] / length)
    return result


def vector_sum(k: KernelBuilder, vector: DeviceOperand) -> DeviceOperand:
    """Emit a kernel for the sum of a vector."""
    result, (one,) = k.scratch((1,), vector.type.dtype), k.grid(1)
    r = k.loop(vector.shape[0])
    k.store(result, (one,), k.sum(vector[r], r))
    return result
