"""Sorting, top-k and argmax.

Ties keep the original order; the reference leaves it unspecified (top_k_op.h, argsort_op.h,
arg_min_max_op_base.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math import sort_kernels as sort_kernels
from compiler.ops.math.axes import check_indices
from compiler.ops.math.reduce import element_type
from compiler.ops.type_checks import require_dtype, require_same_shape, shown


def argsort_along(X: Array, axis: int, descending: bool) -> Array:
    """Return the indices that sort X along an axis; the sort is stable."""
    if not descending:
        return np.argsort(X, axis=axis, kind="stable")
    flipped = np.flip(X, axis)
    order = np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
    return X.shape[axis] - 1 - order


def scatter_along(values: Array, order: Array, shape: Any, axis: int) -> Array:
    """Scatter values along an axis of a zero array, to the indices they were gathered from."""
    whole: Array = np.zeros_like(values, shape=shape)
    np.put_along_axis(whole, order, values, axis=axis)
    return whole


def top_values(X: Array, count: int, axis: int, largest: bool) -> dict[str, Array]:
    """Return the `count` largest or smallest values along an axis, sorted, with indices.

    Raises ValueError if there are fewer.
    """
    if not 0 < count <= X.shape[axis]:
        raise ValueError(f"K is {count}, expected 1 to {X.shape[axis]}")
    order = np.take(argsort_along(X, axis, largest), np.arange(count), axis=axis)
    return {"Out": np.take_along_axis(X, order, axis=axis), "Indices": order}


def check_axis(op: str, X: TensorType, axis: int) -> None:
    """Raise ShapeError if `axis` is out of range."""
    if not -X.rank <= axis < X.rank:
        raise ShapeError(f"{op}: X is {X}, which has no axis {axis}")


def both_outputs(
    k: KernelBuilder,
    X: DeviceOperand,
    count: Size,
    axis: int,
    Out: DeviceOperand | None,
    Indices: DeviceOperand | None,
) -> tuple[DeviceOperand, DeviceOperand]:
    """Return both outputs of a sorting op, with scratch memory for an unused one."""
    axis_index = axis % X.type.rank
    shape = (*X.shape[:axis_index], count, *X.shape[axis_index + 1 :])
    return Out or k.scratch(shape, X.type.dtype), Indices or k.scratch(shape, DType.INT64)


def expect_selected(
    op: str, X: TensorType, Indices: TensorType, d_Out: TensorType, axis: int
) -> None:
    """Raise ShapeError unless Indices and d_Out have the shape of a selection of X on an axis."""
    if not X.rank or Indices.rank != X.rank:
        raise ShapeError(f"{op}: {shown(X=X, Indices=Indices)} must have one rank, from 1 up")
    sizes = list(X.shape)
    sizes[axis] = Indices.shape[axis]
    require_same_shape(
        op, **{"Indices": Indices, "Out@GRAD": d_Out, "a selection of X": X.with_shape(sizes)}
    )


class TopK(OpDef, op="top_k"):
    """Out = the `k` largest values along the last axis, in descending order, and their Indices.

    The one-element tensor K overrides `k`.
    """

    X = reads()
    K = reads(optional=True, no_grad=True)
    Out = writes()
    Indices = writes()
    k = attr(1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        K = s.get("K")
        columns = X.shape[-1]
        if K is None and (self.k < 1 or is_less(columns, self.k)):
            raise ShapeError(f"top_k: X is {X}, expected at least k={self.k} columns, k >= 1")
        output = X.with_shape((*X.shape[:-1], self.k if K is None else UNKNOWN))
        return {"Out": output, "Indices": output.with_dtype(DType.INT64)}

    def numpy(self, X: Array, K: Array | None) -> dict[str, Array]:
        return top_values(X, self.k if K is None else int(K.reshape(-1)[0]), -1, True)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        expect_selected("top_k_grad", s.X, s.Indices, s.d_Out, -1)
        return {"X": s.X}

    def grad(self, X: Shape, Indices: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": scatter_along(d_Out, Indices, X, -1)}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Out = s.get("Out")
        rows, columns = product(X.shape[:-1]), X.shape[-1]
        table = X.view((rows, columns))
        indices = s.get("Indices") or k.scratch((rows, self.k), DType.INT64)
        if self.k == 1:
            k.line(f"{table}.argmax(axis=1, out={indices.view((rows,))})")
        else:
            order = f"np.argsort(-{table}, axis=1, kind='stable')[:, :{self.k}]"
            k.line(f"np.copyto({indices.view((rows, self.k))}, {order})")
        if Out is not None:
            taken = f"np.take_along_axis({table}, {indices.view((rows, self.k))}, axis=1)"
            k.line(f"np.copyto({Out.view((rows, self.k))}, {taken})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Indices, d_Out, d_X = s.Indices, s.d_Out, s.d_X
        k.line(f"{d_X}.fill(0)")
        k.line(f"np.put_along_axis({d_X}, {Indices}, {d_Out}, axis=-1)")

    def host_instead_of_gpu(self, types: Mapping[str, Any]) -> str:
        """Return why a call has no kernel on a GPU: the rows are too long."""
        return sort_kernels.host_reason(types, -1, self.k)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        values, indices = both_outputs(k, X, self.k, -1, s.get("Out"), s.get("Indices"))
        sort_kernels.top_values(k, X, self.k, -1 % X.type.rank, True, values, indices)

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.Indices}, {s.X.shape[-1]}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        sort_kernels.scatter_along(k, s.d_Out, s.Indices, s.d_X, -1 % s.d_X.type.rank)


class TopKV2(OpDef, op="top_k_v2"):
    """Out = the `k` largest, or smallest, values along `axis`, sorted, and their Indices.

    The one-element tensor K overrides `k`. Results are sorted even if not `sorted`. Paddle 2 op.
    """

    X = reads()
    K = reads(optional=True, no_grad=True)
    Out = writes()
    Indices = writes()
    k = attr(1)
    axis = attr(-1)
    largest = attr(True)
    sorted = attr(True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        K = s.get("K")
        check_axis(self.kind, X, self.axis)
        axis = self.axis % X.rank
        size = X.shape[axis]
        if K is None and (self.k < 1 or is_less(size, self.k)):
            raise ShapeError(f"top_k_v2: X is {X}, expected k={self.k} or more along axis {axis}")
        count = self.k if K is None else UNKNOWN
        output = X.with_shape((*X.shape[:axis], count, *X.shape[axis + 1 :]))
        return {"Out": output, "Indices": output.with_dtype(DType.INT64)}

    def numpy(self, X: Array, K: Array | None) -> dict[str, Array]:
        count = self.k if K is None else int(K.reshape(-1)[0])
        return top_values(X, count, self.axis, self.largest)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        check_axis(self.kind, X, self.axis)
        expect_selected("top_k_v2_grad", X, s.Indices, s.d_Out, self.axis)
        return {"X": X}

    def grad(self, X: Shape, Indices: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": scatter_along(d_Out, Indices, X, self.axis)}

    def host_instead_of_gpu(self, types: Mapping[str, Any]) -> str:
        """Return why a call has no kernel on a GPU: the rows are too long."""
        return sort_kernels.host_reason(types, self.axis, self.k)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        values, indices = both_outputs(k, X, self.k, self.axis, s.get("Out"), s.get("Indices"))
        sort_kernels.top_values(
            k, X, self.k, self.axis % X.type.rank, self.largest, values, indices
        )

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.Indices}, {s.X.shape[self.axis]}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        sort_kernels.scatter_along(k, s.d_Out, s.Indices, s.d_X, self.axis % s.d_X.type.rank)


class Argsort(OpDef, op="argsort"):
    """Out = X sorted along `axis`, descending if `descending`; Indices = the permutation."""

    X = reads()
    Out = writes()
    Indices = writes()
    axis = attr(-1)
    descending = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        check_axis(self.kind, X, self.axis)
        return {"Out": X, "Indices": X.with_dtype(DType.INT64)}

    def numpy(self, X: Array) -> dict[str, Array]:
        order = argsort_along(X, self.axis, self.descending)
        return {"Out": np.take_along_axis(X, order, axis=self.axis), "Indices": order}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        check_axis(self.kind, s.X, self.axis)
        return {"X": s.X}

    def grad(self, X: Shape, Indices: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": scatter_along(d_Out, Indices, X, self.axis)}

    def host_instead_of_gpu(self, types: Mapping[str, Any]) -> str:
        """Return why a call has no kernel on a GPU: the rows are too long."""
        return sort_kernels.host_reason(types, self.axis, None)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axis = self.axis % X.type.rank
        size = X.shape[axis]
        values, indices = both_outputs(k, X, size, axis, s.get("Out"), s.get("Indices"))
        sort_kernels.sort_along(k, X, axis, self.descending, values, indices)

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.Indices}, {s.X.shape[self.axis]}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        sort_kernels.scatter_along(k, s.d_Out, s.Indices, s.d_X, self.axis % s.d_X.type.rank)


class ArgMinMax(OpDef):
    """Index of the maximum or minimum along `axis`, int32 or int64.

    The axis is removed unless `keepdims`, but Out keeps at least one axis; with `flatten` (Paddle
    2) the index is into X flattened.
    """

    X = reads()
    Out = writes()
    axis = required(int, WIDE)
    keepdims = attr(False)
    dtype = attr(-1)
    flatten = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        check_axis(self.kind, X, 0 if self.flatten else self.axis)
        dtype = DType.INT64 if self.dtype < 0 else DType.of(self.dtype)
        require_dtype(self.kind, "Out", X.with_dtype(dtype), DType.INT32, DType.INT64)
        if is_less(X.numel if self.flatten else X.shape[self.axis], 1):
            raise ShapeError(f"{self.kind}: X is {X}, expected elements to choose from")
        if self.flatten:
            return TensorType(dtype, (1,) * (X.rank if self.keepdims else 1))
        axis = self.axis % X.rank
        left, right = X.shape[:axis], X.shape[axis + 1 :]
        shape = (*left, 1, *right) if self.keepdims else (*left, *right)
        return TensorType(dtype, shape or (1,))

    def find(self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, largest: bool) -> None:
        """Emit a kernel for the indices of the maximum or minimum."""
        searched = X.reshaped((X.type.numel,)) if self.flatten else X
        axis = 0 if self.flatten else self.axis % X.type.rank
        sort_kernels.arg_min_max(k, searched, axis, largest, Out)


def typed_indices(found: Array, rank: int, keepdims: bool, dtype: int) -> Array:
    """Cast indices to their dtype; a scalar becomes shape [1], or [1] * rank with `keepdims`."""
    typed = found.astype("int64" if dtype < 0 else element_type(dtype, found))
    return typed.reshape((1,) * (rank if keepdims else 1)) if typed.ndim == 0 else typed


class ArgMax(ArgMinMax, op="arg_max"):
    """Out = the index of the maximum along `axis`."""

    lod_source = ""

    def numpy(self, X: Array) -> Array:
        axis = None if self.flatten else self.axis
        indices = np.argmax(X, axis=axis, keepdims=self.keepdims)
        return typed_indices(indices, X.ndim, self.keepdims, self.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.find(k, s.X, s.Out, True)


class ArgMin(ArgMinMax, op="arg_min"):
    """Out = the index of the minimum along `axis`."""

    def numpy(self, X: Array) -> Array:
        axis = None if self.flatten else self.axis
        indices = np.argmin(X, axis=axis, keepdims=self.keepdims)
        return typed_indices(indices, X.ndim, self.keepdims, self.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.find(k, s.X, s.Out, False)
