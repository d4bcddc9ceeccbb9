"""Indexing by tensors: gather, scatter and related ops.

Indices out of range, including negative ones, are errors: the reference reads or writes out of
bounds there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import (
    check_indices,
    int_values,
    normalize_axis,
    unknown_shape,
    zeros_shaped,
)
from compiler.ops.shared_kernels import (
    add_rows,
    copy,
    fill,
    gather_slices,
    inside,
    last_uses,
    scatter_slices,
    store_sums,
)
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, require_same_shape


def require_index_dtype(op: str, **slots: TensorType) -> None:
    """Raise ShapeError unless index tensors are int32 or int64."""
    for slot, type in slots.items():
        require_dtype(op, slot, type, DType.INT32, DType.INT64)


def axis_index(positions: Array, axis: int) -> tuple[Any, ...]:
    """Return an index that takes `positions` along one axis and all of the axes before it."""
    return (*(slice(None),) * axis, positions)


# ---- along one axis -----------------------------------------------------------------------------


class Gather(OpDef, op="gather"):
    """Out = the slices of X at the indices Index along an axis.

    With `overwrite` the gradient of a slice that is gathered repeatedly is that of its last use,
    else their sum. The axis is 0, unless later models set `axis` or the tensor Axis. Reference:
    gather_op.h.
    """

    lod_source = ""

    X = reads()
    Index = reads(no_grad=True)
    Axis = reads(optional=True, no_grad=True)
    Out = writes()
    overwrite = attr(True)
    axis = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Index = s.X, s.Index
        require_index_dtype(self.kind, Index=Index)
        if Index.rank != 1 and (Index.rank != 2 or differ(Index.shape[1], 1)):
            raise ShapeError(f"gather: Index is {Index}, expected [count] or [count, 1]")
        if s.get("Axis") is not None:
            return X.with_shape(unknown_shape(X.rank))
        axis = normalize_axis(self.kind, self.axis, X.rank)
        return X.with_shape((*X.shape[:axis], Index.shape[0], *X.shape[axis + 1 :]))

    def numpy(self, X: Array, Index: Array, Axis: Array | None) -> Array:
        axis = int_values(Axis, None, [self.axis])[0]
        check_indices(Index, X.shape[axis], "gather")
        return np.take(X, Index.reshape(-1), axis=axis)

    def grad(self, X: Shape, Index: Array, Axis: Array | None, d_Out: Array) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Out)
        taken = axis_index(Index.reshape(-1), int_values(Axis, None, [self.axis])[0] % d_X.ndim)
        if self.overwrite:
            d_X[taken] = d_Out
        else:
            np.add.at(d_X, taken, d_Out)
        return {"X": d_X}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Index, Out = s.X, s.Index, s.Out
        rows = Index.view((Index.type.numel,))
        axis = self.axis % X.type.rank
        k.line(f"{k.function(check_indices)}({Index}, {X.shape[axis]}, 'gather')")
        k.line(f"np.take({X}, {rows}, axis={axis}, out={Out}, mode='clip')")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        Axis = s.get("Axis")
        rows, rank = s.Index.view((s.Index.type.numel,)), d_X.type.rank
        taken = f"({'slice(None), ' * (self.axis % rank)}{rows},)"
        if Axis is not None:
            taken = f"{k.function(axis_index)}({rows}, int({Axis.view((1,))}[0]) % {rank})"
        k.line(f"{d_X}.fill(0)")
        if self.overwrite:
            k.line(f"{d_X}[{taken}] = {d_Out}")
        else:
            k.line(f"np.add.at({d_X}, {taken}, {d_Out})")

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Index, X, Axis = s.Index, s.X, s.get("Axis")
        size = str(X.shape[self.axis % X.type.rank])
        if Axis is not None:
            size = f"[{', '.join(map(str, X.shape))}][int({Axis.view((1,))}[0])]"
        k.line(f"{k.function(check_indices)}({Index}, {size}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        gather_slices(k, s.X, s.Index, s.Out, self.axis % s.X.type.rank)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        if self.overwrite:
            scatter_slices(k, s.d_Out, s.Index, d_X, self.axis % d_X.type.rank)
        else:
            fill(k, d_X, 0)
            add_rows(k, s.d_Out, s.Index, d_X, self.axis % d_X.type.rank)


class IndexSelect(OpDef, op="index_select"):
    """Out = the slices of X at the indices Index along the axis `dim`; gradients are summed.

    Reference: index_select_op.h.
    """

    X = reads()
    Index = reads(no_grad=True)
    Out = writes()
    dim = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Index = s.X, s.Index
        require_index_dtype(self.kind, Index=Index)
        if Index.rank != 1 and (Index.rank != 2 or differ(Index.shape[1], 1)):
            raise ShapeError(f"index_select: Index is {Index}, expected [count] or [count, 1]")
        axis = normalize_axis(self.kind, self.dim, X.rank, "dim")
        return X.with_shape((*X.shape[:axis], Index.shape[0], *X.shape[axis + 1 :]))

    def numpy(self, X: Array, Index: Array) -> Array:
        check_indices(Index, X.shape[self.dim], "index_select")
        return np.take(X, Index.reshape(-1), axis=self.dim)

    def grad(self, X: Shape, Index: Array, d_Out: Array) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Out)
        np.add.at(d_X, axis_index(Index.reshape(-1), self.dim % d_X.ndim), d_Out)
        return {"X": d_X}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Index = s.Index
        size = s.X.shape[self.dim % s.X.type.rank]
        k.line(f"{k.function(check_indices)}({Index}, {size}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        gather_slices(k, s.X, s.Index, s.Out, self.dim % s.X.type.rank)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        fill(k, d_X, 0)
        add_rows(k, s.d_Out, s.Index, d_X, self.dim % d_X.type.rank)


class IndexSample(OpDef, op="index_sample"):
    """Out[i, j] = X[i, Index[i, j]].

    Reference: index_sample_op.h.
    """

    X = reads()
    Index = reads(no_grad=True)
    Out = writes(shares_lod=False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Index = s.X, s.Index
        require_index_dtype(self.kind, Index=Index)
        if X.rank != 2 or Index.rank != 2 or differ(X.shape[0], Index.shape[0]):
            raise ShapeError(f"index_sample: X {X} and Index {Index} differ in the number of rows")
        return X.with_shape(Index.shape)

    def numpy(self, X: Array, Index: Array) -> Array:
        check_indices(Index, X.shape[1], "index_sample")
        return np.take_along_axis(X, Index, axis=1)

    def grad(self, X: Shape, Index: Array, d_Out: Array) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Out)
        np.add.at(d_X, (np.arange(len(Index))[:, np.newaxis], Index), d_Out)
        return {"X": d_X}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Index = s.X, s.Index
        k.line(f"{k.function(check_indices)}({Index}, {X.shape[1]}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.Out.shape)
        index = s.Index[i, j]
        k.store(s.Out, (i, j), s.X.at(i, index, where=inside(k, index, s.X.shape[1]), other=0))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        fill(k, d_X, 0)
        i, j = k.grid(*s.d_Out.shape)
        index = s.Index[i, j]
        k.add(d_X, (i, index), s.d_Out[i, j], inside(k, index, d_X.shape[1]))


class Scatter(OpDef, op="scatter"):
    """Out = X with the slices at the indices Ids replaced by Updates.

    For repeated indices the last update wins with `overwrite`, else updates are summed. As in the
    reference, the gradient of X is that of Out, overwritten slices included, and each update has
    the gradient of its slice. Reference: scatter_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Ids = reads(no_grad=True)
    Updates = reads()
    Out = writes()
    overwrite = attr(True)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Ids = s.X, s.Ids
        require_index_dtype(self.kind, Ids=Ids)
        require_same_dtype(self.kind, X=X, Updates=s.Updates)
        if Ids.rank != 1:
            raise ShapeError(f"scatter: Ids is {Ids}, expected [count]")
        require_same_shape(
            self.kind, Updates=s.Updates, slices=X.with_shape((Ids.shape[0], *X.shape[1:]))
        )
        return X

    def numpy(self, X: Array, Ids: Array, Updates: Array) -> Array:
        check_indices(Ids, len(X), "scatter")
        Out = X.copy()
        if self.overwrite:
            Out[Ids] = Updates
        else:
            Out[Ids] = 0
            np.add.at(Out, Ids, Updates)
        return Out

    def grad(self, Ids: Array, Updates: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out, "Updates": d_Out[Ids]}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Ids = s.X, s.Ids
        k.line(f"{k.function(check_indices)}({Ids}, {X.shape[0]}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Ids, Out = s.X, s.Ids, s.Out
        if self.overwrite:
            scatter_slices(k, s.Updates, Ids, Out, 0, below=X)
            return
        if not k.on_gpu:
            copy(k, X, Out)
            store_sums(k, s.Updates, Ids, Out)
            return
        last = last_uses(k, Ids, X.shape[0])
        indices = k.grid(*X.shape)
        k.store(Out, indices, k.where(last[indices[0]] >= 0, 0, X[indices]))
        add_rows(k, s.Updates, Ids, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        if (d_X := s.get("d_X")) is not None:
            copy(k, s.d_Out, d_X)
        if (d_Updates := s.get("d_Updates")) is not None:
            gather_slices(k, s.d_Out, s.Ids, d_Updates, 0)
