"""The same columns of several tables, side by side or added up."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.shape.join import common
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import numeric


def columns(width: int, start: int, length: int) -> slice:
    """The `length` columns from `start` on; ValueError where a table has not as many.

    A negative start counts from behind, a negative length takes all that follow.

    >>> columns(5, -3, 2), columns(5, 1, -1)
    (slice(2, 4, None), slice(1, 5, None))
    """
    first = start + width if start < 0 else start
    end = width if length < 0 else first + length
    if not 0 <= first < width or end > width:
        raise ValueError(
            f"'start_index' {start} and 'length' {length} are not columns of a table of {width}"
        )
    return slice(first, end)


def spread(part: Array, shape: Shape, start: int, length: int) -> Array:
    """A table of zeros but for some columns."""
    rows, width = numeric(shape)
    table = np.zeros((rows, width), part.dtype)
    table[:, columns(width, start, length)] = part
    return table


class Partial(OpDef):
    """What takes the `length` columns from `start_index` on of each table of X."""

    X = reads(many=True)
    Out = writes()
    start_index = attr(0)
    length = attr(-1)

    def taken(self, X: list[TensorType]) -> tuple[Size, Size]:
        """How many rows and columns of each table are taken; the tables have one shape."""
        sizes = common(self.kind, X)
        if len(sizes) != 2:
            raise ShapeError(f"{self.kind}: X[0] is {X[0]}, expected [rows, columns]")
        rows, width = sizes
        if isinstance(width, int):
            try:
                part = columns(width, self.start_index, self.length)
            except ValueError as error:
                raise BadAttribute(f"{self.kind}: {error}") from None
            return rows, part.stop - part.start
        if self.length >= 0:
            return rows, self.length
        return rows, -self.start_index if self.start_index < 0 else width - self.start_index

    def place(self, k: KernelBuilder, table: Shape) -> Number:
        """The first column that is taken of a table."""
        return self.start_index + (k.size(table[1]) if self.start_index < 0 else 0)

    def put_back(
        self,
        k: KernelBuilder,
        d_Out: DeviceOperand,
        d_table: DeviceOperand,
        number: int,
        parts: int,
    ) -> None:
        """A kernel for a table of zeros but for its columns in a part of `d_Out`."""
        i, j = k.grid(*d_table.shape)
        width = d_Out.shape[1] // parts
        own = j - self.place(k, d_table.shape)
        value = d_Out.at(i, own + number * k.size(width), where=inside(k, own, width), other=0)
        k.store(d_table, (i, j), value)


class PartialConcat(Partial, op="partial_concat"):
    """Out = some columns of each table of X [rows, columns], side by side.

    Reference: partial_concat_op.h.
    """

    def infer(self, X: list[TensorType]) -> TensorType:
        rows, count = self.taken(X)
        return X[0].with_shape((rows, count * len(X)))

    def numpy(self, X: list[Array]) -> Array:
        part = columns(X[0].shape[1], self.start_index, self.length)
        return np.concatenate([each[:, part] for each in X], axis=1)

    def grad(self, X: list[Shape], d_Out: Array) -> dict[str, list[Array]]:
        pieces = np.split(d_Out, len(X), axis=1)
        return {"X": [spread(each, X[0], self.start_index, self.length) for each in pieces]}

    def triton(self, k: KernelBuilder, X: list[DeviceOperand], Out: DeviceOperand) -> None:
        count = Out.shape[1] // len(X)
        for number, table in enumerate(X):
            i, j = k.grid(Out.shape[0], count)
            k.store(Out, (i, j + number * k.size(count)), table[i, j + self.place(k, table.shape)])

    def triton_grad(
        self, k: KernelBuilder, d_Out: DeviceOperand, d_X: list[DeviceOperand | None]
    ) -> None:
        for number, table in enumerate(d_X):
            if table is not None:
                self.put_back(k, d_Out, table, number, len(d_X))


class PartialSum(Partial, op="partial_sum"):
    """Out = the sum of some columns of each table of X [rows, columns].

    A negative `start_index` counts from behind; there the reference reads beside the tables.
    Reference: partial_sum_op.h.
    """

    def infer(self, X: list[TensorType]) -> TensorType:
        return X[0].with_shape(self.taken(X))

    def numpy(self, X: list[Array]) -> Array:
        part = columns(X[0].shape[1], self.start_index, self.length)
        return np.sum([each[:, part] for each in X], axis=0, dtype=X[0].dtype)

    def grad(self, X: list[Shape], d_Out: Array) -> dict[str, list[Array]]:
        return {"X": [spread(d_Out, X[0], self.start_index, self.length)] * len(X)}

    def triton(self, k: KernelBuilder, X: list[DeviceOperand], Out: DeviceOperand) -> None:
        i, j = k.grid(*Out.shape)
        first, total = self.place(k, X[0].shape), None
        for table in X:
            total = table[i, j + first] if total is None else total + table[i, j + first]
        k.store(Out, (i, j), total)

    def triton_grad(
        self, k: KernelBuilder, d_Out: DeviceOperand, d_X: list[DeviceOperand | None]
    ) -> None:
        for table in (each for each in d_X if each is not None):
            self.put_back(k, d_Out, table, 0, 1)
