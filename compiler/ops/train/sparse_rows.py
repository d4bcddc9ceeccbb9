"""Sparse rows: the gradient of a table that was looked up, as values and the numbers of their rows.

Row numbers may repeat; what they stand for is the sum. Ops that would do something else to repeated
rows than to their sum merge them first. The plain functions here are carried into generated code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size, product
from compiler.ir.opdef import OpDef, attr, reads, reads_rows, required, writes, writes_rows
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Operand, SourceBuilder
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.duplicate_rows import Merged, places, summed
from compiler.ops.shape.join import join_parts
from compiler.ops.shared_kernels import copy, fill, number
from compiler.ops.type_checks import differ, require_same_dtype


def merge_rows(values: Array, rows: Array) -> tuple[Array, Array]:
    """Each row number once, in rising order, and the sums of the values that carry it."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[starts], np.add.reduceat(values[order], starts, axis=0)


def merge_repeated(values: Array, rows: Array) -> tuple[Array, Array]:
    """The same where row numbers repeat; else copies, in the order they have."""
    if np.unique(rows).size == rows.size:
        return rows.copy(), values.copy()
    return merge_rows(values, rows)


def lower_places(k: SourceBuilder, rows: Operand, width: Size) -> str:
    """Write where the elements of rows lie in a flat table: an expression for int64 positions."""
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

    Positions in flat arrays are NumPy's fastest way to add where rows repeat.
    """
    size = values.type.numel
    places = lower_places(k, rows, product(table.shape[1:]))
    flat = table.view((table.type.numel,))
    k.line(f"np.{function}.at({flat}, {places}, {values.view((size,))})")


def rows_type(count: Size) -> TensorType:
    """The type of so many row numbers."""
    return TensorType(DType.INT64, (count,))


def merge_in_place(values: Array, rows: Array) -> tuple[Array, Array, int]:
    """As many values and rows as before, merged ones first, and how many those are.

    What is left over is 0 and has the number of the first row, to which it adds nothing.
    """
    numbers, total = merge_rows(values, rows)
    merged, kept, count = np.zeros_like(values), np.zeros_like(rows), len(numbers)
    merged[:count], kept[:count] = total, numbers
    kept[count:] = numbers[:1]
    return merged, kept, count


class MergeSelectedRows(OpDef, op="merge_selected_rows"):
    """Out has every row of X once: the sum of those with its number.

    Rows are in rising order, or as they were where no number repeats.

    Row numbers are known where a graph is made; a program declares the shape of the whole.
    Reference: merge_selected_rows_op.h.
    """

    no_kernel_reason = "only data decides how many rows are left"

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer(self, X: TensorType, X_rows: TensorType | None) -> dict[str, TensorType]:
        merged = X if X_rows is None else X.with_shape((UNKNOWN, *X.shape[1:]))
        return {"Out": merged, "Out_rows": rows_type(UNKNOWN)}

    def numpy(self, X: Array, X_rows: Array | None) -> dict[str, Array]:
        if X_rows is None:
            raise ValueError("merge_selected_rows takes a sparse gradient, but X is dense")
        rows, values = merge_repeated(X, X_rows)
        return {"Out": values, "Out_rows": rows}


class GetTensorFromSelectedRows(OpDef, op="get_tensor_from_selected_rows"):
    """Out = the values of sparse rows, one below the other, whatever their numbers.

    Reference: get_tensor_from_selected_rows_op.cc.
    """

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()

    def infer(self, X: TensorType) -> TensorType:
        return X

    def numpy(self, X: Array) -> Array:
        return X

    def triton(self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand) -> None:
        copy(k, X, Out)


class SumRows(OpDef, op="sum_rows"):
    """`sum` of sparse terms only: their rows, one term after the other."""

    X = reads(many=True)
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer(self, X: list[TensorType], X_rows: list[TensorType] | None) -> dict[str, TensorType]:
        require_same_dtype("sum", **{f"X[{i}]": term for i, term in enumerate(X)})
        count: Size = 0
        for term in X if X_rows else X[:1]:
            count = count + term.shape[0]
        return {"Out": X[0].with_shape((count, *X[0].shape[1:])), "Out_rows": rows_type(count)}

    def numpy(self, X: list[Array], X_rows: list[Array]) -> dict[str, Array]:
        return {"Out": np.concatenate(X), "Out_rows": np.concatenate(X_rows)}

    def lower(
        self,
        k: SourceBuilder,
        X: list[Operand],
        X_rows: list[Operand],
        Out: Operand | None,
        Out_rows: Operand | None,
    ) -> None:
        pairs = [(parts, whole) for parts, whole in ((X, Out), (X_rows, Out_rows)) if whole]
        for parts, whole in pairs:
            k.line(f"np.concatenate([{', '.join(map(str, parts))}], out={whole})")

    def triton(
        self,
        k: KernelBuilder,
        X: list[DeviceOperand],
        X_rows: list[DeviceOperand],
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        for parts, whole in ((X, Out), (X_rows, Out_rows)):
            if whole is not None:
                join_parts(k, parts, whole, 0)


class SparseToSparse(OpDef):
    """What has as many rows as X, each with a number."""

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of X, and of a number for each of its rows."""
        return {"Out": types["X"], "Out_rows": rows_type(types["X"].shape[0])}


class ElementwiseMulRows(SparseToSparse, op="elementwise_mul_rows"):
    """`elementwise_mul` of sparse rows and a tensor of one element."""

    Y = reads()
    axis = attr(-1)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types as above; ShapeError where Y has more than one element."""
        if differ(types["Y"].numel, 1):
            raise ShapeError(
                f"elementwise_mul: X is sparse, but Y is {types['Y']}, expected one element"
            )
        return super().infer_types(types)

    def numpy(self, X: Array, X_rows: Array, Y: Array) -> dict[str, Array]:
        return {"Out": X * Y.reshape(1), "Out_rows": X_rows}

    def lower(
        self,
        k: SourceBuilder,
        X: Operand,
        X_rows: Operand,
        Y: Operand,
        Out: Operand | None,
        Out_rows: Operand | None,
    ) -> None:
        if Out is not None:
            k.line(f"np.multiply({X}, {Y.view((1,))}, out={Out})")
        if Out_rows is not None:
            k.line(f"np.copyto({Out_rows}, {X_rows})")

    def triton(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_rows: DeviceOperand,
        Y: DeviceOperand,
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        if Out is not None:
            indices = k.grid(*X.shape)
            k.store(Out, indices, X[indices] * number(k, Y))
        if Out_rows is not None:
            copy(k, X_rows, Out_rows)


class ScaleRows(SparseToSparse, op="scale_rows"):
    """`scale` of sparse rows without a bias; rows that X lacks stay 0."""

    ScaleTensor = reads(optional=True)
    scale = attr(1.0)
    bias = attr(0.0)
    bias_after_scale = attr(True)

    def numpy(self, X: Array, X_rows: Array, ScaleTensor: Array | None) -> dict[str, Array]:
        factor = self.scale if ScaleTensor is None else ScaleTensor.reshape(1)
        return {"Out": (X * factor).astype(X.dtype, copy=False), "Out_rows": X_rows}

    def lower(
        self,
        k: SourceBuilder,
        X: Operand,
        X_rows: Operand,
        ScaleTensor: Operand | None,
        Out: Operand | None,
        Out_rows: Operand | None,
    ) -> None:
        factor = repr(float(self.scale)) if ScaleTensor is None else ScaleTensor.view((1,))
        if Out is not None:
            k.line(f"np.multiply({X}, {factor}, out={Out})")
        if Out_rows is not None:
            k.line(f"np.copyto({Out_rows}, {X_rows})")

    def triton(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_rows: DeviceOperand,
        ScaleTensor: DeviceOperand | None,
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        if Out is not None:
            indices = k.grid(*X.shape)
            factor = float(self.scale) if ScaleTensor is None else number(k, ScaleTensor)
            k.store(Out, indices, X[indices] * factor)
        if Out_rows is not None:
            copy(k, X_rows, Out_rows)


def put_merged(
    k: KernelBuilder, X: DeviceOperand, X_rows: DeviceOperand, Out_rows: DeviceOperand | None
) -> tuple[Merged, DeviceOperand, DeviceOperand]:
    """Kernels for the merged rows of X, their places among all, and their numbers at these places.

    What is left over has the number of the first row.
    """
    found, totals = summed(k, X, X_rows)
    place = places(k, X_rows, found)
    if Out_rows is not None:
        (n,) = k.grid(totals.shape[0])
        r = k.loop(totals.shape[0])
        k.store(Out_rows, (n,), k.min(X_rows[r], r))
        (n,) = k.grid(totals.shape[0])
        k.store(Out_rows, (place[n],), X_rows[n], found.length[n] > 0)
    return found, totals, place


class MergeRows(SparseToSparse, op="merge_rows"):
    """Out has every row of X once, the sum of those with its number, in order of numbers.

    Behind them are zeros, as many rows as X has in all, so that sizes are known. No op of the
    reference: the pass `merge_squares` makes it of `merge_selected_rows` where zeros do not matter.
    """

    def numpy(self, X: Array, X_rows: Array) -> dict[str, Array]:
        merged, rows, _ = merge_in_place(X, X_rows)
        return {"Out": merged, "Out_rows": rows}

    def triton(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_rows: DeviceOperand,
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        found, totals, place = put_merged(k, X, X_rows, Out_rows)
        if Out is not None:
            fill(k, Out, 0)
            n, j = k.grid(*totals.shape)
            whole = Out.reshaped(totals.shape)
            k.store(whole, (place[n], j), totals[n, j], found.length[n] > 0)


class ClipRows(SparseToSparse, op="clip_rows"):
    """`clip` of sparse rows: of their sums where they repeat. Rows that X lacks stay 0."""

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

    def triton(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_rows: DeviceOperand,
        Min: DeviceOperand | None,
        Max: DeviceOperand | None,
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        found, totals, place = put_merged(k, X, X_rows, Out_rows)
        if Out is not None:
            fill(k, Out, 0)
            n, j = k.grid(*totals.shape)
            low = self.min if Min is None else number(k, Min)
            high = self.max if Max is None else number(k, Max)
            value = k.minimum(k.maximum(totals[n, j], low), high)
            k.store(Out.reshaped(totals.shape), (place[n], j), value, found.length[n] > 0)


class ClipByNormRows(SparseToSparse, op="clip_by_norm_rows"):
    """`clip_by_norm` of sparse rows: by the norm of their sums where they repeat."""

    max_norm = required(float, FINITE)

    def numpy(self, X: Array, X_rows: Array) -> dict[str, Array]:
        total = merge_rows(X, X_rows)[1]
        norm = np.sqrt(np.vdot(total, total))
        factor = self.max_norm / norm if norm > self.max_norm else 1.0
        return {"Out": X * X.dtype.type(factor), "Out_rows": X_rows}

    def triton(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_rows: DeviceOperand,
        Out: DeviceOperand | None,
        Out_rows: DeviceOperand | None,
    ) -> None:
        if Out is not None:
            totals = summed(k, X, X_rows)[1]
            norm = k.scratch((1,), X.type.dtype)
            (one,) = k.grid(1)
            r = k.loop(totals.type.numel)
            total = totals.reshaped((totals.type.numel,))[r]
            k.store(norm, (one,), k.sqrt(k.sum(total * total, r)))
            indices = k.grid(*X.shape)
            factor = self.max_norm / k.maximum(norm[0], self.max_norm)
            k.store(Out, indices, X[indices] * factor)
        if Out_rows is not None:
            copy(k, X_rows, Out_rows)
