"""similarity_focus: a mask of the largest elements of a channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import Attr, OpDef, Slots, reads, required, required_list, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.image.layouts import require_images


def ascending_keys(values: Array) -> Array:
    """Return integers in the order of numbers, above the least integer; NaN is below all numbers.

    >>> keys = ascending_keys(np.array([np.nan, -np.inf, -1, -0.0, 0, 1, np.inf]))
    >>> np.diff(keys).tolist()[3], (np.diff(keys) >= 0).all()
    (0, np.True_)
    """
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    bits = (values + values.dtype.type(0)).view(f"i{values.dtype.itemsize}")
    limits = np.iinfo(bits.dtype)
    keys = bits ^ ((bits >> (limits.bits - 1)) & limits.max)
    keys[np.isnan(values)] = limits.min + 1
    return keys


def select_row_column_maxima(tables: Array) -> Array:
    """Return True at the maximum, the maximum outside its row and column, and so on.

    Of each of the tables [count, rows, columns]; the first of equal numbers is taken.
    """
    keys, chosen = ascending_keys(tables), np.zeros(tables.shape, np.bool_)
    count, rows, columns = tables.shape
    taken = np.iinfo(keys.dtype).min
    table: Array = np.arange(int(count))
    for _ in range(min(rows, columns)):
        row, column = np.divmod(keys.reshape(count, rows * columns).argmax(axis=1), columns)
        chosen[table, row, column] = True
        keys[table, row] = taken
        keys[table, :, column] = taken
    return chosen


class SimilarityFocus(OpDef, op="similarity_focus"):
    """Out = 1 in every slice where an element is selected in one of the slices `indexes`.

    X has four axes; `indexes` choose slices along `axis`, each a table. In a table, the maximum is
    selected, then the maximum that shares no row or column with it, and so on. Reference:
    similarity_focus_op.h.
    """

    no_kernel_reason = "elements are selected sequentially, in descending order"

    X = reads(no_grad=True)
    Out = writes()
    axis: Attr[int] = required(int)
    indexes: Attr[list[int]] = required_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        if self.axis not in (1, 2, 3):
            raise BadAttribute(f"similarity_focus: axis is {self.axis}, expected 1, 2 or 3")
        size = X.shape[self.axis]
        if not self.indexes or (isinstance(size, int) and not _fit(self.indexes, size)):
            actual = f"similarity_focus: indexes are {self.indexes}"
            raise BadAttribute(f"{actual}, expected slices of axis {self.axis} of X {X}")
        return X

    def numpy(self, X: Array) -> Array:
        tables = np.moveaxis(X, self.axis, 1)[:, self.indexes]
        chosen = select_row_column_maxima(tables.reshape(-1, *tables.shape[2:]))
        chosen = np.logical_or.reduce(chosen.reshape(tables.shape), axis=1, keepdims=True)
        spread = np.broadcast_to(np.moveaxis(chosen, 1, self.axis), X.shape)
        return spread.astype(X.dtype)


def _fit(indexes: Sequence[int], size: int) -> bool:
    return all(0 <= index < size for index in indexes)
