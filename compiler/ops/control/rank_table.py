"""Rank tables: sequences sorted by length and processed step by step, for `DynamicRNN`.

A rank table is an int64 tensor [sequences, 2] of (index, length), sorted by descending length,
stably. The LoD levels outside of the ranked one become the table's LoD. At step t, the first
entries of a tensor in this order belong to the sequences longer than t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.control.tensor_arrays import LEVEL
from compiler.ops.sequence.lod_entries import behind, picked, starts_of
from compiler.ops.type_checks import numeric
from compiler.support.limits import MAX_ARRAY_ITEMS

OFFSETS = TensorType(DType.INT64, (UNKNOWN,))
"""Type of a LoD level with an unknown number of entries."""


class LodRankTable(OpDef, op="lod_rank_table"):
    """Out = the rank table of the sequences of X at `level`. Reference: lod_rank_table_op.cc."""

    no_kernel_reason = "the host ranks sequences"

    X = reads(shape_only=True, no_grad=True)
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    level = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        X_lod = s.all("X_lod")
        if not 0 <= self.level < len(X_lod):
            raise ShapeError(
                f"{self.kind}: X has {len(X_lod)} LoD levels, expected a level {self.level}"
            )
        table = TensorType(DType.INT64, (X_lod[self.level].shape[0] - 1, 2))
        return {"Out": table, "Out_lod": X_lod[: self.level]}

    def declared_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return a table of unknown length if fewer levels are declared: more may be fed."""
        levels: list[TensorType] = types.get("X_lod") or []
        if self.level < len(levels):
            return self.infer_types(types)
        table = TensorType(DType.INT64, (UNKNOWN, 2))
        return {"Out": table, "Out_lod": levels + [OFFSETS] * (self.level - len(levels))}

    def numpy(self, X_lod: list[Array]) -> dict[str, Any]:
        lengths = np.diff(X_lod[self.level])
        order = np.argsort(-lengths, kind="stable")
        Out = np.stack([order, lengths[order]], axis=1).astype(np.int64)
        return {"Out": Out, "Out_lod": X_lod[: self.level]}


class MaxSequenceLen(OpDef, op="max_sequence_len"):
    """Out = the length of the longest sequence. Reference: max_sequence_len_op.cc."""

    no_kernel_reason = "the host ranks sequences"

    lod_source = ""

    RankTable = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT64, (1,))

    def numpy(self, RankTable: Array) -> Array:
        return RankTable[:1, 1].copy() if len(RankTable) else np.zeros(1, np.int64)


class LodTensorToArray(OpDef, op="lod_tensor_to_array"):
    """Item t of Out = entry t of every sequence of X that has one, longest sequence first.

    The gradient is `array_to_lod_tensor`. Reference: lod_tensor_to_array_op.cc.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    X_lod = reads_lod("X")
    RankTable = reads(no_grad=True)
    RankTable_lod = reads_lod("RankTable", optional=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        item = (UNKNOWN, *s.X.shape[1:])
        inner = s.all("X_lod")[len(s.all("RankTable_lod")) + 1 :]
        return {"Out": TensorType(s.X.dtype, item, is_array=True), "Out_lod": [LEVEL] * len(inner)}

    def numpy(
        self, X: Array, X_lod: list[Array], RankTable: Array, RankTable_lod: list[Array] | None
    ) -> dict[str, Any]:
        level = len(RankTable_lod or ())
        order, lengths = table_columns(RankTable)
        starts = X_lod[level][order]
        if (lengths > np.diff(X_lod[level])[order]).any():
            raise ValueError("RankTable has longer sequences than X")
        steps = range(int(lengths.max(initial=0)))
        items = [picked(X_lod[level + 1 :], starts[lengths > step] + step) for step in steps]
        levels = [[item[0][k] for item in items] for k in range(len(X_lod) - level - 1)]
        return {"Out": [X[item[1]] for item in items], "Out_lod": levels}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_with_table(op, grad, "array_to_lod_tensor")]


class ArrayToLodTensor(OpDef, op="array_to_lod_tensor"):
    """Out = the sequences whose entries are the items of X, in their original order.

    The gradient is `lod_tensor_to_array`. Reference: array_to_lod_tensor_op.cc.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    X_lod = reads_lod("X", optional=True)
    RankTable = reads(no_grad=True)
    RankTable_lod = reads_lod("RankTable", optional=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        X, RankTable = s.get("X"), s.get("RankTable")
        count = UNKNOWN if RankTable is None else RankTable.shape[0] + 1
        inner = [OFFSETS] * len(s.all("X_lod"))
        levels = [*s.all("RankTable_lod"), TensorType(DType.INT64, (count,)), *inner]
        if X is None:
            return {"Out_lod": levels}
        return {"Out": TensorType(X.dtype, (UNKNOWN, *X.shape[1:])), "Out_lod": levels}

    def numpy(
        self,
        X: list[Array | None],
        X_lod: list[list[Array]] | None,
        RankTable: Array,
        RankTable_lod: list[Array] | None,
    ) -> dict[str, Any]:
        indices, lengths = table_columns(RankTable)
        steps: Array = np.arange(int(lengths[:1].sum()))
        counts: Array = len(lengths) - np.searchsorted(lengths[::-1], steps, "right")
        rank = np.argsort(indices, kind="stable")
        starts = starts_of(lengths[rank])
        step: Array = np.arange(int(starts[-1])) - np.repeat(starts[:-1], lengths[rank])
        order = starts_of(counts)[step] + np.repeat(rank, lengths[rank])
        inner, rows = picked(concat_levels(X_lod or []), order)
        whole = np.concatenate(fill_holes(X, counts))
        levels = [*(RankTable_lod or ()), starts, *inner]
        return {"Out": whole[rows], "Out_lod": levels}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_with_table(op, grad, "lod_tensor_to_array")]


class ShrinkRnnMemory(OpDef, op="shrink_rnn_memory"):
    """Out = the entries of X that belong to sequences longer than I.

    Reference: shrink_rnn_memory_op.cc.
    """

    no_kernel_reason = "the host ranks sequences"

    X = reads()
    X_lod = reads_lod("X", optional=True)
    RankTable = reads(no_grad=True)
    I = reads(no_grad=True)  # noqa: E741
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        levels = [OFFSETS] * len(s.all("X_lod"))
        return {"Out": s.X.with_shape((UNKNOWN, *s.X.shape[1:])), "Out_lod": levels}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(
        self,
        X: Array,
        X_lod: list[Array] | None,
        RankTable: Array,
        I: Array,  # noqa: E741
    ) -> dict[str, Any]:
        count = int((RankTable[:, 1] > I.item()).sum())
        levels, rows = picked(X_lod or [], np.arange(count))
        return {"Out": X[: len(rows)], "Out_lod": levels}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        d_X = np.zeros(numeric(X), d_Out.dtype)
        d_X[: len(d_Out)] = d_Out
        return {"X": d_X}


class ReorderByRank(OpDef, op="reorder_lod_tensor_by_rank"):
    """Out = the entries of X in the order of RankTable.

    The gradient is an op that restores the order. Reference: reorder_lod_tensor_by_rank_op.cc.
    """

    no_kernel_reason = "the host ranks sequences"

    X = reads()
    X_lod = reads_lod("X", optional=True)
    RankTable = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {"Out": s.X, "Out_lod": s.all("X_lod")}

    def numpy(self, X: Array, X_lod: list[Array] | None, RankTable: Array) -> dict[str, Any]:
        levels, rows = picked(X_lod or [], RankTable[:, 0])
        return {"Out": X[rows], "Out_lod": levels}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_with_table(op, grad, "reorder_lod_tensor_by_rank_grad")]


class ReorderByRankGrad(OpDef, op="reorder_lod_tensor_by_rank_grad"):
    """Out = the entries of X, which are in the order of RankTable, in their original order."""

    no_kernel_reason = "the host ranks sequences"

    X = reads()
    X_lod = reads_lod("X", optional=True)
    RankTable = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {"Out": s.X, "Out_lod": s.all("X_lod")}

    def numpy(self, X: Array, X_lod: list[Array] | None, RankTable: Array) -> dict[str, Any]:
        levels, rows = picked(X_lod or [], np.argsort(RankTable[:, 0], kind="stable"))
        return {"Out": X[rows], "Out_lod": levels}


def gradient_with_table(op: OpDesc, grad: Callable[[str], str], kind: str) -> OpDesc:
    """Return an op with the same table that maps the gradient of Out to that of X."""
    (X,), (Out,) = op.inputs["X"], op.outputs["Out"]
    inputs = {"X": [grad(Out)], "RankTable": op.inputs["RankTable"]}
    return OpDesc(kind, inputs, {"Out": [grad(X)]}, op.attrs)


def table_columns(table: Array) -> tuple[Array, Array]:
    """Return the indices and the lengths of a rank table.

    Raises ValueError unless the indices are those of all sequences, and the lengths descend from at
    most MAX_ARRAY_ITEMS to at least 0.
    """
    indices, lengths = table[:, 0], table[:, 1]
    if not np.array_equal(np.sort(indices), np.arange(len(table))):
        raise ValueError("RankTable does not have each sequence once")
    if len(table) and lengths[0] > MAX_ARRAY_ITEMS:
        raise ValueError(
            f"RankTable has a sequence of {lengths[0]} entries, expected at most {MAX_ARRAY_ITEMS}"
        )
    if (lengths[1:] > lengths[:-1]).any() or (lengths < 0).any():
        raise ValueError("RankTable has lengths that do not descend to 0 or more")
    return indices, lengths


def fill_holes(items: list[Any], counts: Array) -> list[Any]:
    """Replace holes by zeros with the given row counts and the shape of the other items.

    Items behind the last one are one array.
    """
    tensors = [item for item in items if item is not None]
    rest, dtype = tensors[0].shape[1:], tensors[0].dtype
    filled = [
        np.zeros((count, *rest), dtype) if item is None else item
        for item, count in zip(items, counts, strict=False)
    ]
    return [*filled, np.zeros((counts[len(items) :].sum(), *rest), dtype)]


def concat_levels(levels: list[list[Any]]) -> list[Any]:
    """Return the LoD of the concatenated items of an array."""
    joined = [level[0] for level in levels]
    for item in range(1, len(levels[0]) if levels else 0):
        joined = behind(joined, [level[item] for level in levels])
    return joined
