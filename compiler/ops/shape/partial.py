"""`partial_concat` and `partial_sum`: a column range of several tables, concatenated or summed."""

from __future__ import annotations

from typing import cast

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.shape.concat import common_shape
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import numeric


def column_slice(width: int, start: int, length: int) -> slice:
    """Return the slice of `length` columns from `start`; raise ValueError if out of range.

    A negative start counts from the end, a negative length takes all remaining columns.

    >>> column_slice(5, -3, 2), column_slice(5, 1, -1)
    (slice(2, 4, None), slice(1, 5, None))
    """
    first = start + width if start < 0 else start
    end = width if length < 0 else first + length
    if not 0 <= first < width or end > width:
        raise ValueError(
            f"'start_index' {start} and 'length' {length} are not columns of a table of {width}"
        )
    return slice(first, end)


def zeros_with_columns(part: Array, shape: Shape, start: int, length: int) -> Array:
    """Return a table of zeros with some columns set to `part`."""
    rows, width = numeric(shape)
    table = np.zeros((rows, width), part.dtype)
    table[:, column_slice(width, start, length)] = part
    return table


class ColumnRangeOp(OpDef):
    """An op over `length` columns from `start_index` of each table in X."""

    X = reads(many=True)
    Out = writes()
    start_index = attr(0)
    length = attr(-1)

    def selected_sizes(self, X: list[TensorType]) -> tuple[Size, Size]:
        """Return the number of rows and of selected columns; the tables have equal shapes."""
        sizes = common_shape(self.kind, X)
        if len(sizes) != 2:
            raise ShapeError(f"{self.kind}: X[0] is {X[0]}, expected [rows, columns]")
        rows, width = sizes
        if isinstance(width, int):
            try:
                part = column_slice(width, self.start_index, self.length)
            except ValueError as error:
                raise BadAttribute(f"{self.kind}: {error}") from None
            return rows, part.stop - part.start
        if self.length >= 0:
            return rows, self.length
        return rows, -self.start_index if self.start_index < 0 else width - self.start_index

    def first_column(self, k: KernelBuilder, table: Shape) -> Number:
        """Return the first selected column of a table."""
        return self.start_index + (k.size(table[1]) if self.start_index < 0 else 0)

    def scatter_columns(
        self,
        k: KernelBuilder,
        d_Out: DeviceOperand,
        d_table: DeviceOperand,
        number: int,
        parts: int,
    ) -> None:
        """Emit a kernel for a table of zeros whose selected columns are a part of `d_Out`."""
        i, j = k.grid(*d_table.shape)
        width = d_Out.shape[1] // parts
        own = j - self.first_column(k, d_table.shape)
        value = d_Out.at(i, own + number * k.size(width), where=inside(k, own, width), other=0)
        k.store(d_table, (i, j), value)


class PartialConcat(ColumnRangeOp, op="partial_concat"):
    """Out = some columns of each table of X [rows, columns], concatenated.

    Reference: partial_concat_op.h.
    """

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.all("X")
        rows, count = self.selected_sizes(X)
        return X[0].with_shape((rows, count * len(X)))

    def numpy(self, X: list[Array]) -> Array:
        part = column_slice(X[0].shape[1], self.start_index, self.length)
        return np.concatenate([array[:, part] for array in X], axis=1)

    def grad(self, X: list[Shape], d_Out: Array) -> dict[str, list[Array]]:
        pieces = np.split(d_Out, len(X), axis=1)
        return {
            "X": [
                zeros_with_columns(piece, X[0], self.start_index, self.length) for piece in pieces
            ]
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        X = s.all("X")
        count = Out.shape[1] // len(X)
        for number, table in enumerate(X):
            i, j = k.grid(Out.shape[0], count)
            k.store(
                Out,
                (i, j + number * k.size(count)),
                table[i, j + self.first_column(k, table.shape)],
            )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = cast("list[DeviceOperand | None]", s.all("d_X"))
        for number, table in enumerate(d_X):
            if table is not None:
                self.scatter_columns(k, s.d_Out, table, number, len(d_X))


class PartialSum(ColumnRangeOp, op="partial_sum"):
    """Out = the sum of some columns of each table of X [rows, columns].

    A negative `start_index` counts from the end; the reference reads out of bounds there.
    Reference: partial_sum_op.h.
    """

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.all("X")
        return X[0].with_shape(self.selected_sizes(X))

    def numpy(self, X: list[Array]) -> Array:
        part = column_slice(X[0].shape[1], self.start_index, self.length)
        return np.sum([array[:, part] for array in X], axis=0, dtype=X[0].dtype)

    def grad(self, X: list[Shape], d_Out: Array) -> dict[str, list[Array]]:
        return {"X": [zeros_with_columns(d_Out, X[0], self.start_index, self.length)] * len(X)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.all("X")
        i, j = k.grid(*s.Out.shape)
        first, total = self.first_column(k, X[0].shape), None
        for table in X:
            total = table[i, j + first] if total is None else total + table[i, j + first]
        k.store(s.Out, (i, j), total)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = cast("list[DeviceOperand | None]", s.all("d_X"))
        for table in (gradient for gradient in d_X if gradient is not None):
            self.scatter_columns(k, s.d_Out, table, 0, 1)
