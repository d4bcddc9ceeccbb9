"""Diagonal and triangular matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type, normalize_axis


class Eye(OpDef, op="eye"):
    """Out = the identity matrix; `num_columns` -1 means a square matrix.

    Reference: eye_op.h.
    """

    Out = writes()
    num_rows = required(int, WIDE)
    num_columns = attr(-1, WIDE)
    dtype = attr(DType.FP32.code)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        columns = self.num_rows if self.num_columns == -1 else self.num_columns
        if self.num_rows < 0 or columns < 0:
            raise BadAttribute(
                f"eye: {self.num_rows} rows and {columns} columns, expected non-negative sizes"
            )
        return TensorType(DType.of(self.dtype), (self.num_rows, columns))

    def numpy(self) -> Array:
        columns = self.num_rows if self.num_columns == -1 else self.num_columns
        return np.eye(self.num_rows, columns, dtype=element_type(self.dtype))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.Out.shape)
        k.store(s.Out, (i, j), k.where(k.equal(i, j), 1, 0))


class Diag(OpDef, op="diag"):
    """Out = a matrix with the vector Diagonal on its diagonal. Reference: diag_op.h."""

    lod_source = ""

    Diagonal = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Diagonal = s.Diagonal
        if Diagonal.rank != 1:
            raise ShapeError(f"diag: Diagonal is {Diagonal}, expected a vector")
        return Diagonal.with_shape(Diagonal.shape * 2)

    def numpy(self, Diagonal: Array) -> Array:
        return np.diag(Diagonal)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.Out.shape)
        k.store(s.Out, (i, j), s.Diagonal.at(i, where=k.equal(i, j), other=0))


class DiagV2(OpDef, op="diag_v2"):
    """Out = the diagonal of the matrix X, or a matrix with the vector X on its diagonal.

    `offset` shifts the diagonal upwards; other elements are `padding_value`. Paddle 2 op.
    """

    lod_source = ""

    X = reads(no_grad=True)
    Out = writes()
    offset = attr(0)
    padding_value = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if X.rank == 1:
            size = X.shape[0] + abs(self.offset)
            return X.with_shape((size, size))
        rows, columns = X.shape if X.rank == 2 else (None, None)
        if rows is None or columns is None:
            raise ShapeError(f"diag_v2: X is {X}, expected a vector or a matrix")
        if not (isinstance(rows, int) and isinstance(columns, int)):
            return X.with_shape([UNKNOWN])
        left = min(rows + min(self.offset, 0), columns - max(self.offset, 0))
        return X.with_shape([max(left, 0)])

    def numpy(self, X: Array) -> Array:
        Out = np.diag(X, self.offset)
        if X.ndim == 1 and self.padding_value:
            on_diagonal = np.eye(len(Out), k=self.offset, dtype=np.bool_)
            Out = np.where(on_diagonal, Out, X.dtype.type(self.padding_value))
        return Out

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        down, right = max(-self.offset, 0), max(self.offset, 0)
        if X.type.rank == 2:
            (n,) = k.grid(*Out.shape)
            k.store(Out, (n,), X[n + down, n + right])
            return
        i, j = k.grid(*Out.shape)
        on_diagonal = k.equal(i + right, j + down) & (i >= down) & (j >= right)
        k.store(Out, (i, j), X.at(i - down, where=on_diagonal, other=self.padding_value))


class DiagEmbed(OpDef, op="diag_embed"):
    """Out = matrices with the last axis of Input on their diagonal, shifted upwards by `offset`.

    Axis `dim1` of Out is the rows, axis `dim2` the columns. Reference: diag_embed_op.h.
    """

    lod_source = ""

    Input = reads(no_grad=True)
    Out = writes()
    offset = attr(0)
    dim1 = attr(-2)
    dim2 = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input = s.Input
        rank = Input.rank + 1
        rows, columns = (normalize_axis(self.kind, a, rank, "dim") for a in (self.dim1, self.dim2))
        if rows == columns:
            raise BadAttribute(
                f"diag_embed: axes {self.dim1} and {self.dim2} of the result are the same"
            )
        sizes: list[Size] = list(Input.shape[:-1])
        for axis in sorted((rows, columns)):
            sizes.insert(axis, Input.shape[-1] + abs(self.offset))
        return Input.with_shape(sizes)

    def numpy(self, Input: Array) -> Array:
        count: int = Input.shape[-1]
        size = count + abs(self.offset)
        whole = np.zeros((*Input.shape[:-1], size, size), Input.dtype)
        first = max(-self.offset, 0)
        rows = np.arange(first, first + count)
        whole[..., rows, rows + self.offset] = Input
        return np.moveaxis(whole, (-2, -1), (self.dim1, self.dim2))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        rank = Out.type.rank
        rows, columns = self.dim1 % rank, self.dim2 % rank
        down, right = max(-self.offset, 0), max(self.offset, 0)
        indices = k.grid(*Out.shape)
        i, j = indices[rows], indices[columns]
        on_diagonal = k.equal(i + right, j + down) & (i >= down) & (j >= right)
        others = [index for axis, index in enumerate(indices) if axis not in (rows, columns)]
        k.store(Out, indices, s.Input.at(*others, i - down, where=on_diagonal, other=0))


def triangle(X: Array, diagonal: int, lower: Any) -> Array:
    """Return the lower or upper triangle of matrices, the rest zeroed."""
    return np.tril(X, diagonal) if lower else np.triu(X, diagonal)


class TrilTriu(OpDef, op="tril_triu"):
    """Out = the lower triangle of the matrices of X if `lower`, else the upper; the rest is 0.

    Reference: tril_triu_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Out = writes()
    diagonal = attr(0)
    lower = required(bool)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if X.rank < 2:
            raise ShapeError(f"tril_triu: X is {X}, expected matrices")
        return X

    def numpy(self, X: Array) -> Array:
        return triangle(X, self.diagonal, self.lower)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": triangle(d_Out, self.diagonal, self.lower)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.X.shape)
        row, column = indices[-2] + self.diagonal, indices[-1]
        in_triangle = column <= row if self.lower else column >= row
        k.store(s.Out, indices, k.where(in_triangle, s.X[indices], 0))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.kernel(k, KernelSlots.of(self.kind, X=s.d_Out, Out=s.d_X))
