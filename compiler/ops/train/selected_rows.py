"""Sparse gradients (SelectedRows): the gradient of a looked-up table, as values and row indices.

Row indices may repeat; their values are added. Ops that are not linear merge repeated rows first.
The plain functions here are copied into generated code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_rows, required, writes, writes_rows
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.duplicate_rows import Merged, places, summed
from compiler.ops.shape.concat_kernels import concat_parts
from compiler.ops.shared_kernels import copy, fill, number
from compiler.ops.type_checks import differ, require_same_dtype, require_scalar, shapes_differ


def merge_rows(values: Array, rows: Array) -> tuple[Array, Array]:
    """Each distinct row index, ascending, and the sums of its values."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[starts], np.add.reduceat(values[order], starts, axis=0)


def merge_repeated(values: Array, rows: Array) -> tuple[Array, Array]:
    """The same if row indices repeat; else copies, in their order."""
    if np.unique(rows).size == rows.size:
        return rows.copy(), values.copy()
    return merge_rows(values, rows)


def lower_flat_indices(k: SourceBuilder, rows: Operand, width: Size) -> str:
    """Write the flat indices of the rows' elements in a table: an int64 expression."""
    count = rows.type.numel
    places = k.scratch((count, width), DType.INT64)
    columns = k.at_bind(f"np.arange({width})", [], "columns")
    k.line(f"np.multiply({rows.view((count, 1))}, {width}, out={places})")
    k.line(f"np.add({places}, {columns}, out={places})")
    return places.view((count * width,))


def lower_add_rows(
    k: SourceBuilder, table: Operand, rows: Operand, values: Operand, function: str = "add"
) -> None:
    """Write table[row] += value for every row, or -= with the function `subtract`.

    Flat indices are NumPy's fastest way to add where rows repeat.
    """
    size = values.type.numel
    places = lower_flat_indices(k, rows, product(table.shape[1:]))
    flat = table.view((table.type.numel,))
    k.line(f"np.{function}.at({flat}, {places}, {values.view((size,))})")


def rows_type(count: Size) -> TensorType:
    """The type of `count` row indices."""
    return TensorType(DType.INT64, (count,))


def merge_in_place(values: Array, rows: Array) -> tuple[Array, Array, int]:
    """Values and rows of unchanged size, merged ones first, and the number of merged ones.

    The remaining values are 0 with the index of the first row, so adding them has no effect.
    """
    numbers, total = merge_rows(values, rows)
    merged, merged_rows, count = np.zeros_like(values), np.zeros_like(rows), len(numbers)
    merged[:count], merged_rows[:count] = total, numbers
    merged_rows[count:] = numbers[:1]
    return merged, merged_rows, count


class MergeSelectedRows(OpDef, op="merge_selected_rows"):
    """Out has every row of X once: the sum of those with its index.

    Rows are ascending, or in their order if no index repeats.

    A graph knows the row indices; a program declares the shape of the whole table.
    Reference: merge_selected_rows_op.h.
    """

    no_kernel_reason = "the number of output rows is data-dependent"

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        merged = X if s.get("X_rows") is None else X.with_shape((UNKNOWN, *X.shape[1:]))
        return {"Out": merged, "Out_rows": rows_type(UNKNOWN)}

    def numpy(self, X: Array, X_rows: Array | None) -> dict[str, Array]:
        if X_rows is None:
            raise ValueError("merge_selected_rows takes a sparse gradient, but X is dense")
        rows, values = merge_repeated(X, X_rows)
        return {"Out": values, "Out_rows": rows}


class GetTensorFromSelectedRows(OpDef, op="get_tensor_from_selected_rows"):
    """Out = the values of a sparse gradient, whatever their row indices.

    Reference: get_tensor_from_selected_rows_op.cc.
    """

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def numpy(self, X: Array) -> Array:
        return X

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.X, s.Out)


class SumRows(OpDef, op="sum_rows"):
    """`sum` of sparse terms only: concatenates their rows."""

    X = reads(many=True)
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.all("X")
        require_same_dtype("sum", **{f"X[{i}]": term for i, term in enumerate(X)})
        count: Size = 0
        for index, term in enumerate(X if s.all("X_rows") else X[:1]):
            if shapes_differ(term.with_shape(term.shape[1:]), term.with_shape(X[0].shape[1:])):
                raise ShapeError(f"sum: X[{index}] is {term} and X[0] {X[0]}, expected equal rows")
            count = count + term.shape[0]
        return {"Out": X[0].with_shape((count, *X[0].shape[1:])), "Out_rows": rows_type(count)}

    def numpy(self, X: list[Array], X_rows: list[Array]) -> dict[str, Array]:
        return {"Out": np.concatenate(X), "Out_rows": np.concatenate(X_rows)}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        pairs = [
            (parts, whole)
            for parts, whole in ((s.all("X"), s.get("Out")), (s.all("X_rows"), s.get("Out_rows")))
            if whole
        ]
        for parts, whole in pairs:
            k.line(f"np.concatenate([{', '.join(map(str, parts))}], out={whole})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        for parts, whole in ((s.all("X"), s.get("Out")), (s.all("X_rows"), s.get("Out_rows"))):
            if whole is not None:
                concat_parts(k, parts, whole, 0)


class SparseToSparse(OpDef):
    """The base of ops whose output has a row, with an index, for each row of X."""

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of X, and of an index for each of its rows."""
        return {"Out": types["X"], "Out_rows": rows_type(types["X"].shape[0])}


class ElementwiseMulRows(SparseToSparse, op="elementwise_mul_rows"):
    """`elementwise_mul` of a sparse gradient and a tensor of one element."""

    Y = reads()
    axis = attr(-1)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types as above; ShapeError if Y has more than one element."""
        if differ(types["Y"].numel, 1):
            raise ShapeError(
                f"elementwise_mul: X is sparse, but Y is {types['Y']}, expected one element"
            )
        return super().infer_types(types)

    def numpy(self, X: Array, X_rows: Array, Y: Array) -> dict[str, Array]:
        return {"Out": X * Y.reshape(1), "Out_rows": X_rows}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, X_rows, Y = s.X, s.X_rows, s.Y
        Out, Out_rows = s.get("Out"), s.get("Out_rows")
        if Out is not None:
            k.line(f"np.multiply({X}, {Y.view((1,))}, out={Out})")
        if Out_rows is not None:
            k.line(f"np.copyto({Out_rows}, {X_rows})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        if (Out := s.get("Out")) is not None:
            indices = k.grid(*s.X.shape)
            k.store(Out, indices, s.X[indices] * number(k, s.Y))
        if (Out_rows := s.get("Out_rows")) is not None:
            copy(k, s.X_rows, Out_rows)


class ScaleRows(SparseToSparse, op="scale_rows"):
    """`scale` of a sparse gradient without a bias; rows that X lacks remain 0."""

    ScaleTensor = reads(optional=True)
    scale = attr(1.0)
    bias = attr(0.0)
    bias_after_scale = attr(True)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types as above; ShapeError if ScaleTensor has more than one element."""
        if types.get("ScaleTensor") is not None:
            require_scalar("scale", ScaleTensor=types["ScaleTensor"])
        return super().infer_types(types)

    def numpy(self, X: Array, X_rows: Array, ScaleTensor: Array | None) -> dict[str, Array]:
        factor = self.scale if ScaleTensor is None else ScaleTensor.reshape(1)
        return {"Out": (X * factor).astype(X.dtype, copy=False), "Out_rows": X_rows}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, X_rows = s.X, s.X_rows
        ScaleTensor, Out, Out_rows = s.get("ScaleTensor"), s.get("Out"), s.get("Out_rows")
        factor = repr(float(self.scale)) if ScaleTensor is None else ScaleTensor.view((1,))
        if Out is not None:
            k.line(f"np.multiply({X}, {factor}, out={Out})")
        if Out_rows is not None:
            k.line(f"np.copyto({Out_rows}, {X_rows})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        ScaleTensor = s.get("ScaleTensor")
        if (Out := s.get("Out")) is not None:
            indices = k.grid(*s.X.shape)
            factor = float(self.scale) if ScaleTensor is None else number(k, ScaleTensor)
            k.store(Out, indices, s.X[indices] * factor)
        if (Out_rows := s.get("Out_rows")) is not None:
            copy(k, s.X_rows, Out_rows)


def emit_merged(
    k: KernelBuilder, X: DeviceOperand, X_rows: DeviceOperand, Out_rows: DeviceOperand | None
) -> tuple[Merged, DeviceOperand, DeviceOperand]:
    """Kernels for the merged rows of X, their positions, and their indices at these positions.

    The remaining positions have the index of the first row.
    """
    groups, totals = summed(k, X, X_rows)
    place = places(k, X_rows, groups)
    if Out_rows is not None:
        (n,) = k.grid(totals.shape[0])
        r = k.loop(totals.shape[0])
        k.store(Out_rows, (n,), k.min(X_rows[r], r))
        (n,) = k.grid(totals.shape[0])
        k.store(Out_rows, (place[n],), X_rows[n], groups.length[n] > 0)
    return groups, totals, place


class MergeRows(SparseToSparse, op="merge_rows"):
    """Out has every row of X once, the sum of those with its index, ascending.

    Zeros follow, for as many rows as X in all, so that sizes are static. Not an op of the
    reference: the pass `merge_squares` replaces `merge_selected_rows` by it if zeros are harmless.
    """

    def numpy(self, X: Array, X_rows: Array) -> dict[str, Array]:
        merged, rows, _ = merge_in_place(X, X_rows)
        return {"Out": merged, "Out_rows": rows}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        groups, totals, place = emit_merged(k, s.X, s.X_rows, s.get("Out_rows"))
        if (Out := s.get("Out")) is not None:
            fill(k, Out, 0)
            n, j = k.grid(*totals.shape)
            whole = Out.reshaped(totals.shape)
            k.store(whole, (place[n], j), totals[n, j], groups.length[n] > 0)


class ClipRows(SparseToSparse, op="clip_rows"):
    """`clip` of a sparse gradient: of the sums where rows repeat. Rows that X lacks remain 0."""

    Min = reads(optional=True)
    Max = reads(optional=True)
    min = required(float)
    max = required(float)

    def numpy(
        self, X: Array, X_rows: Array, Min: Array | None, Max: Array | None
    ) -> dict[str, Array]:
        merged, rows, count = merge_in_place(X, X_rows)
        low = self.min if Min is None else Min
        high = self.max if Max is None else Max
        merged[:count] = np.minimum(np.maximum(merged[:count], low), high)
        return {"Out": merged, "Out_rows": rows}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Min, Max = s.get("Min"), s.get("Max")
        groups, totals, place = emit_merged(k, s.X, s.X_rows, s.get("Out_rows"))
        if (Out := s.get("Out")) is not None:
            fill(k, Out, 0)
            n, j = k.grid(*totals.shape)
            low = self.min if Min is None else number(k, Min)
            high = self.max if Max is None else number(k, Max)
            value = k.minimum(k.maximum(totals[n, j], low), high)
            k.store(Out.reshaped(totals.shape), (place[n], j), value, groups.length[n] > 0)


class ClipByNormRows(SparseToSparse, op="clip_by_norm_rows"):
    """`clip_by_norm` of a sparse gradient: by the norm of the sums where rows repeat."""

    max_norm = required(float, FINITE)

    def numpy(self, X: Array, X_rows: Array) -> dict[str, Array]:
        total = merge_rows(X, X_rows)[1]
        norm = np.sqrt(np.vdot(total, total))
        factor = self.max_norm / norm if norm > self.max_norm else 1.0
        return {"Out": X * X.dtype.type(factor), "Out_rows": X_rows}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        if (Out := s.get("Out")) is not None:
            totals = summed(k, X, s.X_rows)[1]
            norm = k.scratch((1,), X.type.dtype)
            (one,) = k.grid(1)
            r = k.loop(totals.type.numel)
            total = totals.reshaped((totals.type.numel,))[r]
            k.store(norm, (one,), k.sqrt(k.sum(total * total, r)))
            indices = k.grid(*X.shape)
            factor = self.max_norm / k.maximum(norm[0], self.max_norm)
            k.store(Out, indices, X[indices] * factor)
        if (Out_rows := s.get("Out_rows")) is not None:
            copy(k, s.X_rows, Out_rows)
