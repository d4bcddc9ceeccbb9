"""Gradients split into the blocks of servers, and ids grouped by server."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import (
    OpDef,
    Share,
    Slots,
    Types,
    attr,
    reads,
    reads_lod,
    reads_rows,
    writes,
    writes_lod,
    writes_rows,
)
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array, TensorType
from compiler.ops.ps.exchange import split_rows, split_sparse_rows
from compiler.ops.shape.concat import copy_part, shares_along
from compiler.ops.train.selected_rows import rows_type

MAX_PARTS = 4096
"""Maximum number of parts of a variable: one per server."""


def _expect_few_parts(op: str, attribute: str, count: int) -> None:
    """Raise BadAttribute if a list has an entry for each of more than MAX_PARTS parts."""
    if count > MAX_PARTS:
        raise BadAttribute(
            f"{op}: attribute {attribute!r} has {count} entries, expected at most {MAX_PARTS}, "
            f"one for each server"
        )


class SplitByref(OpDef, op="split_byref"):
    """Out = the rows of X split into `sections`, or into `num` equal parts.

    The parts are views of X where the memory plan allows it. Reference: split_byref_op.cc.
    """

    is_cheap = True
    no_kernel_reason = "the host sends its outputs"

    X = reads()
    Out = writes(many=True)
    sections = attr(list[int]())
    num = attr(0, between(0, MAX_PARTS))

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.X
        return {"Out": [X.with_shape((rows, *X.shape[1:])) for rows in self.rows(X)]}

    def rows(self, X: TensorType) -> list[Size]:
        """Return the number of rows of each part; raise ShapeError unless they add up to X's."""
        _expect_few_parts(self.kind, "sections", len(self.sections))
        whole: Size = X.shape[0] if X.rank else 0
        if self.num:
            part = whole // self.num
            return [part if part * self.num == whole else UNKNOWN] * self.num
        if not self.sections or (isinstance(whole, int) and sum(self.sections) != whole):
            raise ShapeError(f"split_byref: X {X} cannot be split into {self.sections} rows")
        return list[Size](self.sections)

    def numpy(self, X: Array) -> dict[str, list[Array]]:
        sections = [len(X) // self.num] * self.num if self.num else self.sections
        return {"Out": split_rows(sections, X)}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        parts = shares_along("X", "Out", self.rows(s.X.type), 0)
        for part, share in zip(s.all("Out"), parts, strict=True):
            copy_part(k, part, s.X, share)

    def shares(self, types: Types) -> list[Share]:
        """Return each part as a view of X."""
        return shares_along("X", "Out", self.rows(types["X"][0]), 0)


class SplitSelectedRows(OpDef, op="split_selected_rows"):
    """Out = the sparse rows of X split into `height_sections`, indexed relative to the section.

    Reference: split_selected_rows_op.cc.
    """

    no_kernel_reason = "the number of rows per part is data-dependent"

    X = reads()
    X_rows = reads_rows("X")
    Out = writes(many=True)
    Out_rows = writes_rows("Out")
    height_sections = attr(list[int]())

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        count = len(self.height_sections)
        _expect_few_parts(self.kind, "height_sections", count)
        part = s.X.with_shape((UNKNOWN, *s.X.shape[1:]))
        return {"Out": [part] * count, "Out_rows": [rows_type(UNKNOWN)] * count}

    def numpy(self, X: Array, X_rows: Array | None) -> dict[str, list[Array]]:
        if X_rows is None:
            raise ValueError("split_selected_rows: X is dense, expected a sparse gradient")
        values, rows = split_sparse_rows(self.height_sections, X, X_rows)
        return {"Out": values, "Out_rows": rows}


class SplitIds(OpDef, op="split_ids"):
    """Out = the ids of each server: server = id mod the number of servers.

    Ids are unique and ascending in each output, int64 [count, 1]. If Ids is a sparse gradient, so
    are the outputs, with row indices relative to the server, which stores row r as r // servers.
    Reference: split_ids_op.h.
    """

    no_kernel_reason = "the number of ids per server is data-dependent"

    Ids = reads(many=True)
    Ids_rows = reads_rows("Ids")
    Out = writes(many=True)
    Out_rows = writes_rows("Out")
    Out_names = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        Ids = s.all("Ids")
        count = max(1, len(self.Out_names))
        _expect_few_parts(self.kind, "Out_names", count)
        if s.all("Ids_rows"):
            part = Ids[0].with_shape((UNKNOWN, *Ids[0].shape[1:]))
            return {"Out": [part] * count, "Out_rows": [rows_type(UNKNOWN)] * count}
        return {"Out": [Ids[0].with_shape((UNKNOWN, 1))] * count}

    def numpy(self, Ids: list[Array], Ids_rows: list[Array] | None) -> dict[str, Any]:
        count = max(1, len(self.Out_names))
        if Ids_rows:
            chosen = [np.flatnonzero(Ids_rows[0] % count == part) for part in range(count)]
            rows = [Ids_rows[0][indices] // count for indices in chosen]
            return {"Out": [Ids[0][indices] for indices in chosen], "Out_rows": rows}
        unique = np.unique(np.concatenate([ids.reshape(-1) for ids in Ids]))
        return {"Out": [unique[unique % count == part].reshape(-1, 1) for part in range(count)]}


class MergeIds(OpDef, op="merge_ids"):
    """Out = for each of Ids the rows of its ids, gathered from X, whose rows have the ids Rows.

    Each has the LoD of its ids. Reference: merge_ids_op.h.
    """

    no_kernel_reason = "rows are looked up by id"

    Ids = reads(many=True)
    Ids_lod = reads_lod("Ids", optional=True)
    Rows = reads(many=True)
    X = reads(many=True)
    Out = writes(many=True)
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.all("X")
        width = X[0].shape[-1]
        return {
            "Out": [
                X[0].with_shape((*tensor_type.shape[:-1], width)) for tensor_type in s.all("Ids")
            ],
            "Out_lod": s.all("Ids_lod"),
        }

    def numpy(
        self, Ids: list[Array], Ids_lod: list[Array] | None, Rows: list[Array], X: list[Array]
    ) -> dict[str, list[Array]]:
        ids = np.concatenate([rows.reshape(-1) for rows in Rows])
        values = np.concatenate(X)
        order = np.argsort(ids, kind="stable")
        outputs = [gather_by_id(wanted_ids, ids, values, order) for wanted_ids in Ids]
        return {"Out": outputs, "Out_lod": Ids_lod or []}


def gather_by_id(ids: Array, known: Array, values: Array, order: Array) -> Array:
    """Return the rows of `values` by id, [*ids.shape[:-1], width]; raise IndexError if missing."""
    flat = ids.reshape(-1)
    positions = np.searchsorted(known[order], flat)
    in_range = positions < len(known)
    if not in_range.all() or not np.array_equal(known[order[positions]], flat):
        raise IndexError("merge_ids: an id is missing from the rows that the servers sent")
    return values[order[positions]].reshape(*ids.shape[:-1], values.shape[-1])
