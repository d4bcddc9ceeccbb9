"""Indexing by tuples of indices: gather_nd and scatter_nd_add.

Indices out of range, including negative ones, are errors: the reference reads or writes out of
bounds there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, Value, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import broadcast_array, check_indices, zeros_shaped
from compiler.ops.shape.index import require_index_dtype
from compiler.ops.shared_kernels import copy, fill, indexed_grid
from compiler.ops.type_checks import require_same_dtype, require_same_shape


def split_index(Index: Array, sizes: tuple[int, ...], op: str) -> tuple[Array, ...]:
    """Split Index, [.., axes], into one index array per leading axis, checking bounds."""
    indices = np.moveaxis(Index, -1, 0)
    for axis, size in enumerate(sizes[: len(indices)]):
        check_indices(indices[axis], size, op)
    return tuple(indices)


def check_tuples(k: SourceBuilder, op: str, X: Operand, Index: Operand) -> None:
    """Write checks of the bounds of Index, [.., axes], on each of the leading axes of X."""
    check = k.function(check_indices)
    for axis, size in enumerate(X.shape[: int(str(Index.shape[-1]))]):
        k.line(f"{check}({Index}[..., {axis}], {size}, {op!r})")


def slices_shape(op: str, X: TensorType, Index: TensorType) -> Shape:
    """Return the shape of the slices at Index, [.., axes]; raise ShapeError for too many axes."""
    require_index_dtype(op, Index=Index)
    count = Index.shape[-1]
    if Index.rank < 2 or not isinstance(count, int) or count > X.rank:
        raise ShapeError(f"{op}: Index is {Index}, expected a known last size, up to {X.rank}")
    return (*Index.shape[:-1], *X.shape[count:])


class GatherNd(OpDef, op="gather_nd"):
    """Out = the slice of X at each index tuple in Index's last axis; gradients are summed.

    Reference: gather_nd_op.h.
    """

    X = reads()
    Index = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(slices_shape(self.kind, s.X, s.Index))

    def numpy(self, X: Array, Index: Array) -> Array:
        if not Index.shape[-1]:
            return np.broadcast_to(X, (*Index.shape[:-1], *X.shape))
        return X[split_index(Index, X.shape, "gather_nd")]

    def grad(self, X: Shape, Index: Array, d_Out: Array) -> dict[str, Array]:
        if not Index.shape[-1]:
            return {"X": d_Out.sum(axis=tuple(range(Index.ndim - 1)))}
        d_X = zeros_shaped(X, d_Out)
        np.add.at(d_X, tuple(np.moveaxis(Index, -1, 0)), d_Out)
        return {"X": d_X}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check_tuples(k, self.kind, s.X, s.Index)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        output_index, indices, where = indexed_grid(k, s.Index, s.X.shape)
        value = s.X.at(*indices, where=where, other=0)
        k.store(s.Out, output_index, value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        fill(k, d_X, 0)
        output_index, indices, where = indexed_grid(k, s.Index, d_X.shape)
        k.add(d_X, indices, s.d_Out[output_index], where)


class ScatterNdAdd(OpDef, op="scatter_nd_add"):
    """Out = X plus each update at its index tuple in Index's last axis.

    Reference: scatter_nd_add_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Index = reads(no_grad=True)
    Updates = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_same_dtype(self.kind, X=X, Updates=s.Updates)
        slices = X.with_shape(slices_shape(self.kind, X, s.Index))
        require_same_shape(self.kind, Updates=s.Updates, slices=slices)
        return X

    def numpy(self, X: Array, Index: Array, Updates: Array) -> Array:
        if not Index.shape[-1]:
            return X + Updates.reshape((-1, *X.shape)).sum(axis=0)
        Out = X.copy()
        np.add.at(Out, split_index(Index, X.shape, "scatter_nd_add"), Updates)
        return Out

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.d_Out, "Updates": s.Updates}

    def grad(self, Index: Array, Updates: Shape, d_Out: Value) -> dict[str, Value]:
        if not Index.shape[-1]:
            return {"X": d_Out, "Updates": broadcast_array(d_Out, Updates)}
        return {"X": d_Out, "Updates": d_Out[tuple(np.moveaxis(Index, -1, 0))]}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check_tuples(k, self.kind, s.X, s.Index)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.X, s.Out)
        output_index, indices, where = indexed_grid(k, s.Index, s.X.shape)
        k.add(s.Out, indices, s.Updates[output_index], where)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        if (d_X := s.get("d_X")) is not None:
            copy(k, d_Out, d_X)
        if (d_Updates := s.get("d_Updates")) is not None:
            output_index, indices, where = indexed_grid(k, s.Index, d_Out.shape)
            value = d_Out.at(*indices, where=where, other=0)
            k.store(d_Updates, output_index, value)
