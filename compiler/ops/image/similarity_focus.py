"""similarity_focus: a mask of the largest elements of a channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import Attr, OpDef, Slots, reads, required, required_list, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.image.layouts import require_images


def select_row_column_maxima(table: Array) -> Array:
    """Return True at the maximum, the maximum outside its row and column, and so on."""
    chosen = np.zeros(table.shape, np.bool_)
    free_rows, free_columns = np.ones(table.shape[0], np.bool_), np.ones(table.shape[1], np.bool_)
    for position in np.argsort(-table, axis=None, kind="stable"):
        row, column = divmod(int(position), table.shape[1])
        if free_rows[row] and free_columns[column]:
            chosen[row, column] = True
            free_rows[row] = free_columns[column] = False
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
        permuted = np.moveaxis(X, self.axis, 1)
        chosen = np.zeros((len(X), 1, *permuted.shape[2:]), np.bool_)
        for tables, mask in zip(permuted, chosen, strict=True):
            for index in self.indexes:
                mask[0] |= select_row_column_maxima(tables[index])
        spread = np.broadcast_to(np.moveaxis(chosen, 1, self.axis), X.shape)
        return spread.astype(X.dtype)


def _fit(indexes: Sequence[int], size: int) -> bool:
    return all(0 <= index < size for index in indexes)
