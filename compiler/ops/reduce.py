"""Sums and means over axes, softmax, and the largest values of each row."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, Rowwise, Value, Xp, attr, reads, type_of, writes
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.checks import numeric, require_dtype


class Reduction(OpDef):
    """X summed over axes, and divided by how many elements that were where it `averages`.

    What is summed over every axis has shape [1]: fluid has no tensors without axes.
    """

    X = reads()
    Out = writes()
    averages: ClassVar[bool] = False

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes that are summed: here all of them."""
        return tuple(range(rank))

    def spread(self, X: Shape) -> Shape:
        """The shape of Out with every summed axis in its place, of size 1."""
        axes = self.axes(len(X))
        return tuple(1 if axis in axes else size for axis, size in enumerate(X))

    def count(self, X: Shape) -> Size:
        """How many elements of X make one of Out."""
        return product(X[axis] for axis in self.axes(len(X)))

    def infer(self, X: TensorType) -> TensorType:
        if self.averages:
            require_dtype(self.kind, "X", X, DType.FP32, DType.FP64, DType.FP16)
        axes = self.axes(X.rank)
        return X.with_shape([size for a, size in enumerate(X.shape) if a not in axes] or [1])

    def numpy(self, X: Array) -> Array:
        result = self.infer(type_of(X))
        total = np.sum(X, axis=self.axes(X.ndim), dtype=result.dtype.numpy)
        if self.averages:
            total = total / total.dtype.type(self.count(X.shape))
        return np.asarray(total).reshape(numeric(result.shape))

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        share = d_Out.reshape(numeric(self.spread(X)))
        if self.averages:
            share = share / share.dtype.type(self.count(X))
        return {"X": np.broadcast_to(share, numeric(X))}

    def lower(self, k: Kernel, X: Operand, Out: Operand) -> None:
        axes = self.axes(X.type.rank)
        if len(axes) == X.type.rank:
            source, axis, target = X.view((X.type.numel,)), "0", Out.view((1,))
        else:
            source, axis, target = str(X), str(axes), Out.view(self.spread(X.shape))
        k.line(f"np.add.reduce({source}, axis={axis}, keepdims=True, out={target})")
        if self.averages:
            k.line(f"np.divide({Out}, {self.divisor(k, X.shape, Out)}, out={Out})")

    def lower_grad(self, k: Kernel, d_Out: Operand, d_X: Operand) -> None:
        whole = d_Out.type.numel == 1
        share = str(d_Out) if whole else d_Out.view(self.spread(d_X.shape))
        if self.averages:
            k.line(f"np.divide({share}, {self.divisor(k, d_X.shape, d_X)}, out={d_X})")
        else:
            k.line(f"np.copyto({d_X}, {share})")

    def divisor(self, k: Kernel, X: Shape, like: Operand) -> str:
        """The count as an array of one element: quicker for NumPy than a Python number."""
        dtype = like.type.dtype.numpy.name
        return k.once(f"np.full(1, {self.count(X)}, np.{dtype})", [], "count")


class Mean(Reduction, op="mean"):
    """Out = the mean of all elements of X, of shape [1]. Reference: mean_op.cc."""

    averages = True


class AxisReduction(Reduction):
    """Summed over the axes `dim`, or all of them where `reduce_all` is set or `dim` lists all.

    Summed axes stay with size 1 if `keep_dim`; Out has the element type `out_dtype` unless that is
    negative. Reference: reduce_op.h.
    """

    dim = attr([0])
    keep_dim = attr(False)
    reduce_all = attr(False)
    in_dtype = attr(-1)
    out_dtype = attr(-1)

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes that are summed; ShapeError where there is no such axis."""
        if any(not -rank <= axis < rank for axis in self.dim):
            raise ShapeError(f"{self.kind}: dim {self.dim} reaches beyond the {rank} axes of X")
        chosen = sorted({axis % rank for axis in self.dim})
        return super().axes(rank) if self.reduce_all else tuple(chosen)

    def infer(self, X: TensorType) -> TensorType:
        result = super().infer(X)
        if self.keep_dim:
            result = X.with_shape(self.spread(X.shape))
        return result if self.out_dtype < 0 else result.with_dtype(DType.of(self.out_dtype))


class ReduceSum(AxisReduction, op="reduce_sum"):
    """Out = X summed over axes."""


class ReduceMean(AxisReduction, op="reduce_mean"):
    """Out = X averaged over axes."""

    averages = True


class Softmax(Rowwise, op="softmax"):
    """Out = exp(X) over its sum along `axis`.

    What lies 64 below the largest counts as 64 below it, so that no probability is 0.
    Reference: softmax_impl.h.
    """

    X = reads()
    Out = writes()
    axis = attr(-1)
    data_format = attr("AnyLayout")
    is_test = attr(False)

    def compute(self, xp: Xp, X: Value) -> Value:
        shifted = xp.maximum(X - xp.max(X, axis=self.axis, keepdims=True), -64.0)
        powers = xp.exp(shifted)
        return powers / xp.sum(powers, axis=self.axis, keepdims=True)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        mean = xp.sum(d_Out * Out, axis=self.axis, keepdims=True)
        return {"X": (d_Out - mean) * Out}


class TopK(OpDef, op="top_k"):
    """Out = the `k` largest values along the last axis, largest first, and their Indices.

    Of equal values the first comes first; the reference leaves that open (top_k_op.h).
    """

    X = reads()
    Out = writes()
    Indices = writes()
    k = attr(1)

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        columns = X.shape[-1]
        if self.k < 1 or (isinstance(columns, int) and columns < self.k):
            raise ShapeError(f"top_k: X is {X}, expected at least k={self.k} columns, k from 1 up")
        best = X.with_shape((*X.shape[:-1], self.k))
        return {"Out": best, "Indices": best.with_dtype(DType.INT64)}

    def numpy(self, X: Array) -> dict[str, Array]:
        order = np.argsort(-X, axis=-1, kind="stable")[..., : self.k]
        return {"Out": np.take_along_axis(X, order, axis=-1), "Indices": order}

    def grad(self, X: Shape, Indices: Array, d_Out: Array) -> dict[str, Array]:
        d_X = np.zeros(numeric(X), d_Out.dtype)
        np.put_along_axis(d_X, Indices, d_Out, axis=-1)
        return {"X": d_X}

    def lower(self, k: Kernel, X: Operand, Out: Operand | None, Indices: Operand | None) -> None:
        rows, columns = product(X.shape[:-1]), X.shape[-1]
        table = X.view((rows, columns))
        found = Indices or k.scratch((rows, self.k), DType.INT64)
        if self.k == 1:
            k.line(f"{table}.argmax(axis=1, out={found.view((rows,))})")
        else:
            order = f"np.argsort(-{table}, axis=1, kind='stable')[:, :{self.k}]"
            k.line(f"np.copyto({found.view((rows, self.k))}, {order})")
        if Out is not None:
            best = f"np.take_along_axis({table}, {found.view((rows, self.k))}, axis=1)"
            k.line(f"np.copyto({Out.view((rows, self.k))}, {best})")

    def lower_grad(self, k: Kernel, Indices: Operand, d_Out: Operand, d_X: Operand) -> None:
        k.line(f"{d_X}.fill(0)")
        k.line(f"np.put_along_axis({d_X}, {Indices}, {d_Out}, axis=-1)")
