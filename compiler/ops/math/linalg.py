"""Vector and matrix products other than plain matmul, and traces.

Reference: dot_op.h, addmm_op.h, cross_op.h, kron_op.h, trace_op.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_not_broadcast, known_to_differ
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.reduce import sum_to, sum_to_shape
from compiler.ops.shared_kernels import broadcast_at, inside, split_at
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown


class Dot(OpDef, op="dot"):
    """Out = the dot products of X and Y along the last axis, kept with size 1; rank 1 or 2."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype(self.kind, X=X, Y=Y)
        require_same_shape(self.kind, X=X, Y=Y)
        if X.rank not in (1, 2):
            raise ShapeError(f"dot: {shown(X=X, Y=Y)}, expected one axis or two")
        return X.with_shape((*X.shape[:-1], 1))

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.sum(X * Y, axis=-1, keepdims=True, dtype=X.dtype)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out * Y, "Y": d_Out * X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        indices = k.grid(*X.shape[:-1])
        r = k.loop(X.shape[-1])
        k.store(s.Out, (*indices, 0), k.sum(X[(*indices, r)] * s.Y[(*indices, r)], r))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.X.shape)
        upstream = s.d_Out[(*indices[:-1], 0)]
        for other, result in ((s.Y, s.get("d_X")), (s.X, s.get("d_Y"))):
            if result is not None:
                k.store(result, indices, upstream * other[indices])


class Addmm(OpDef, op="addmm"):
    """Out = Beta * Input + Alpha * X @ Y for matrices; Input broadcasts to the product."""

    Input = reads()
    X = reads()
    Y = reads()
    Out = writes()
    Alpha = attr(1.0)
    Beta = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input, X, Y = s.Input, s.X, s.Y
        require_same_dtype(self.kind, Input=Input, X=X, Y=Y)
        shapes = shown(Input=Input, X=X, Y=Y)
        if (Input.rank, X.rank, Y.rank) != (2, 2, 2) or differ(X.shape[1], Y.shape[0]):
            raise ShapeError(
                f"addmm: {shapes}, expected matrices, with as many columns of X as rows of Y"
            )
        product_shape = (X.shape[0], Y.shape[1])
        if any(map(is_not_broadcast, Input.shape, product_shape)):
            raise ShapeError(f"addmm: {shapes}: Input does not broadcast to the product")
        return X.with_shape(product_shape)

    def numpy(self, Input: Array, X: Array, Y: Array) -> Array:
        return Input * self.Beta + np.matmul(X, Y) * self.Alpha

    def grad(self, Input: Shape, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        scaled = d_Out * self.Alpha
        by_factors = {"X": np.matmul(scaled, Y.T), "Y": np.matmul(X.T, scaled)}
        return {"Input": sum_to_shape(d_Out * self.Beta, Input)} | by_factors

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        _, i, j, left, right = k.tiles((), Out.shape[0], Out.shape[1], s.X.shape[1])
        total = k.contract(s.X[i, left], s.Y[right, j]) * self.Alpha
        k.store(Out, (i, j), total + s.Input[broadcast_at(s.Input.shape, (i, j))] * self.Beta)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        if (d_Input := s.get("d_Input")) is not None:
            sum_to(k, d_Out.shape, d_Input, lambda at: d_Out[at] * self.Beta)
        if (d_X := s.get("d_X")) is not None:
            k.matmul(d_X, d_Out, s.Y, transposed=(False, True), scale=self.Alpha)
        if (d_Y := s.get("d_Y")) is not None:
            k.matmul(d_Y, s.X, d_Out, transposed=(True, False), scale=self.Alpha)


class Cross(OpDef, op="cross"):
    """Out = the cross products of X and Y along the axis `dim`, which has size 3.

    The default is the first axis of size 3.
    """

    X = reads()
    Y = reads()
    Out = writes()
    dim = attr(9)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_same_dtype(self.kind, X=X, Y=s.Y)
        require_same_shape(self.kind, X=X, Y=s.Y)
        axes = range(X.rank) if self.dim == 9 else [self.dim]
        if not any(-X.rank <= a < X.rank and not known_to_differ(X.shape[a], 3) for a in axes):
            where = "some axis" if self.dim == 9 else f"axis {self.dim}"
            raise ShapeError(f"cross: X is {X}, expected size 3 along {where}")
        return X

    def numpy(self, X: Array, Y: Array) -> Array:
        return cross_products(X, Y, vector_axis(X.shape, self.dim))

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        axis = vector_axis(X.shape, self.dim)
        return {"X": cross_products(Y, d_Out, axis), "Y": cross_products(d_Out, X, axis)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        cross_kernel(k, s.X, s.Y, self.dim, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        if (d_X := s.get("d_X")) is not None:
            cross_kernel(k, s.Y, s.d_Out, self.dim, d_X)
        if (d_Y := s.get("d_Y")) is not None:
            cross_kernel(k, s.d_Out, s.X, self.dim, d_Y)

    def host_only(self, types: Mapping[str, Any]) -> str:
        named = any(not isinstance(size, int) for size in types["X"].shape)
        return "its axis is the first of size 3, which symbolic sizes leave open" * (
            named and self.dim == 9
        )


def vector_axis(shape: Any, dim: int) -> int:
    """Return the axis of a cross product: `dim`, or the first axis of size 3 if `dim` is 9.

    Raises ValueError if no axis has that size.

    >>> vector_axis((2, 3, 3), 9), vector_axis((2, 3), -1)
    (1, -1)
    """
    if dim == 9 and 3 not in shape:
        raise ValueError(f"cross: no axis of X has size 3, its shape is {shape}")
    return shape.index(3) if dim == 9 else dim


def cross_products(X: Array, Y: Array, axis: int) -> Array:
    """Return the cross products along an axis of size 3."""
    x, y = np.moveaxis(X, axis, 0), np.moveaxis(Y, axis, 0)
    parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    return np.stack(parts, axis)


def cross_kernel(
    k: KernelBuilder, X: DeviceOperand, Y: DeviceOperand, dim: int, out: DeviceOperand
) -> None:
    """Emit a kernel for out = the cross products of X and Y."""
    whole = split_at(X.shape, vector_axis(X.shape, dim) % X.type.rank)
    i, c, j = k.grid(*whole)
    x, y, one, two = X.reshaped(whole), Y.reshaped(whole), k.mod(c + 1, 3), k.mod(c + 2, 3)
    difference = x[i, one, j] * y[i, two, j] - x[i, two, j] * y[i, one, j]
    k.store(out.reshaped(whole), (i, c, j), difference)


class Kron(OpDef, op="kron"):
    """Out = the Kronecker product: X with each element replaced by that element times Y.

    The operand of lower rank gets leading axes of size 1.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        require_same_dtype(self.kind, X=X, Y=Y)
        rank = max(X.rank, Y.rank)
        x, y = (1,) * (rank - X.rank) + X.shape, (1,) * (rank - Y.rank) + Y.shape
        return X.with_shape([a * b for a, b in zip(x, y, strict=True)])

    def numpy(self, X: Array, Y: Array) -> Array:
        return np.kron(X, Y)

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        x, y = split_axes(X, Y.ndim, 1), split_axes(Y, X.ndim, 0)
        axes = [d // n for d, n in zip(d_Out.shape, y.shape[1::2], strict=True)]
        sizes = [size for pair in zip(axes, y.shape[1::2], strict=True) for size in pair]
        viewed = d_Out.reshape(sizes)
        inner, outer = tuple(range(1, viewed.ndim, 2)), tuple(range(0, viewed.ndim, 2))
        by_x, by_y = np.sum(viewed * y, axis=inner), np.sum(viewed * x, axis=outer)
        return {"X": by_x.reshape(X.shape), "Y": by_y.reshape(Y.shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        x, y = (with_rank(operand, Out.type.rank) for operand in (s.X, s.Y))
        indices = k.grid(*Out.shape)
        pairs = [(i, k.size(size)) for i, size in zip(indices, y.shape, strict=True)]
        outer, inner = (tuple(part(*pair) for pair in pairs) for part in (k.div, k.mod))
        k.store(Out, indices, x[outer] * y[inner])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        def upstream(outer: Sequence[Number], inner: Sequence[Number]) -> Number:
            sizes = [k.size(size) for size in y.shape]
            return s.d_Out[tuple(i * n + j for i, n, j in zip(outer, sizes, inner, strict=True))]

        x, y = (with_rank(operand, s.d_Out.type.rank) for operand in (s.X, s.Y))
        if (d_X := s.get("d_X")) is not None:
            i, r = k.grid(*x.shape), k.loop(product(y.shape))
            j = k.unravel(r, y.shape)
            k.store(d_X.reshaped(x.shape), i, k.sum(upstream(i, j) * y[j], r))
        if (d_Y := s.get("d_Y")) is not None:
            j, r = k.grid(*y.shape), k.loop(product(x.shape))
            i = k.unravel(r, x.shape)
            k.store(d_Y.reshaped(y.shape), j, k.sum(upstream(i, j) * x[i], r))


def with_rank(X: DeviceOperand, rank: int) -> DeviceOperand:
    """View an operand with leading axes of size 1, up to `rank`."""
    return X.reshaped((*(1 for _ in range(rank - X.type.rank)), *X.shape))


def split_axes(X: Array, rank: int, after: int) -> Array:
    """Split each axis of X, padded to `rank`, in two axes, one of size 1 (the second if `after`).

    >>> split_axes(np.zeros((2, 3)), 3, 1).shape
    (1, 1, 2, 1, 3, 1)
    """
    sizes = (1,) * (rank - X.ndim) + X.shape
    return X.reshape([n for size in sizes for n in ((size, 1) if after else (1, size))])


class Trace(OpDef, op="trace"):
    """Out = the sum along the diagonal of axes `dim1` and `dim2`, shifted by `offset` columns.

    The larger axis indexes the columns, whatever the order. Both axes are removed; Out is at least
    [1].
    """

    Input = reads()
    Out = writes()
    offset = attr(0)
    dim1 = attr(-2)
    dim2 = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input = s.Input
        rank, axes = Input.rank, (self.dim1, self.dim2)
        if rank < 2 or any(not -rank <= axis < rank for axis in axes):
            raise ShapeError(f"trace: Input is {Input}, which has no axes {self.dim1}, {self.dim2}")
        removed = {axis % rank for axis in axes}
        if len(removed) == 1:
            raise ShapeError(f"trace: dim1 and dim2 are both axis {self.dim1} of Input {Input}")
        return Input.with_shape([n for a, n in enumerate(Input.shape) if a not in removed] or [1])

    def numpy(self, Input: Array) -> Array:
        rows, columns = diagonal_axes(Input.ndim, self.dim1, self.dim2)
        viewed: Array = np.moveaxis(Input, (rows, columns), (-2, -1))
        along = diagonal_indices(viewed.shape, self.offset)
        return np.atleast_1d(viewed[(..., *along)].sum(axis=-1, dtype=Input.dtype))

    def grad(self, Input: Shape, d_Out: Array) -> dict[str, Array]:
        axes = diagonal_axes(len(Input), self.dim1, self.dim2)
        return {"Input": scatter_diagonal(d_Out, Input, self.offset, axes)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        rows, columns = diagonal_axes(Input.type.rank, self.dim1, self.dim2)
        remaining = [size for a, size in enumerate(Input.shape) if a not in (rows, columns)]
        output_index = k.grid(*remaining)
        r = k.loop(Input.shape[rows])
        at = [*output_index]
        at.insert(rows, r)
        at.insert(columns, r + self.offset)
        value = Input.at(*at, where=inside(k, r + self.offset, Input.shape[columns]), other=0)
        k.store(s.Out.reshaped(remaining), output_index, k.sum(value, r))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Input = s.d_Input
        rows, columns = diagonal_axes(d_Input.type.rank, self.dim1, self.dim2)
        at = k.grid(*d_Input.shape)
        removed = (rows, columns)
        remaining = [size for a, size in enumerate(d_Input.shape) if a not in removed]
        upstream = s.d_Out.reshaped(remaining)[
            tuple(i for a, i in enumerate(at) if a not in removed)
        ]
        own = k.equal(at[columns] - at[rows], self.offset)
        k.store(d_Input, at, k.where(own, upstream, 0))


def diagonal_axes(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    """Return the two axes of a diagonal, in ascending order.

    >>> diagonal_axes(3, -1, 0)
    (0, 2)
    """
    return min(dim1 % rank, dim2 % rank), max(dim1 % rank, dim2 % rank)


def scatter_diagonal(values: Array, shape: Any, offset: int, axes: tuple[int, int]) -> Array:
    """Return zeros of `shape` with one value broadcast along each diagonal of two axes."""
    whole: Array = np.zeros_like(values, shape=shape)
    viewed: Array = np.moveaxis(whole, axes, (-2, -1))
    viewed[(..., *diagonal_indices(viewed.shape, offset))] = values.reshape(*viewed.shape[:-2], 1)
    return whole


def diagonal_indices(shape: Sequence[int], offset: int) -> tuple[Array, Array]:
    """Return the row and column indices of a diagonal of the last two axes, empty if out of range.

    Avoids NumPy's own, which crashes for an offset of -2³¹.
    """
    rows, columns = max(-offset, 0), max(offset, 0)
    along: Array = np.arange(max(0, min(shape[-2] - rows, shape[-1] - columns)))
    return (along + rows, along + columns) if len(along) else (along, along)
