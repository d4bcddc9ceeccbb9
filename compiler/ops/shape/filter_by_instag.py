"""`filter_by_instag`: instances of a batch filtered by tags."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.sequence.offsets import require_one_level
from compiler.ops.type_checks import numeric, require_dtype
from compiler.support.free_memory import expect_memory


def tag_vector(name: str, tags: Array) -> Array:
    """Return tags as a vector; raise ValueError unless there is one per row."""
    if tags.size != len(tags):
        raise ValueError(
            f"filter_by_instag: {name} is {list(tags.shape)}, expected one tag per row: [count, 1]"
        )
    return tags.reshape(-1)


def instance_offsets(rows: int, lod: list[Array] | None) -> Array:
    """Return the LoD offsets of the instances; raise ValueError if there is no LoD."""
    if lod is None:
        raise ValueError(
            f"filter_by_instag: Ins has {rows} rows and no sequences; without is_lod each row is "
            "an instance"
        )
    return lod[0]


def matching_sequences(tags: Array, offsets: Array, wanted: Array) -> Array:
    """Return the indices of the tag sequences that contain a wanted tag.

    >>> matching_sequences(np.array([0, 1, 3, 1]), np.array([0, 2, 2, 3, 4]), np.array([1, 7]))
    array([0, 3])
    """
    counts = np.append(0, np.cumsum(np.isin(tags, wanted)))[offsets]
    return np.flatnonzero(np.diff(counts))


def index_map(offsets: Array, chosen: Array) -> Array:
    """Return (new first row, old first row, row count) of each chosen sequence: [count, 3].

    Raises ValueError if an index is out of range.
    """
    if len(chosen) and chosen[-1] >= len(offsets) - 1:
        raise ValueError(
            f"filter_by_instag: Ins_tag has tags of instance {chosen[-1]}, but Ins has only "
            f"{len(offsets) - 1} instances"
        )
    lengths = np.diff(offsets)[chosen]
    return np.stack([np.cumsum(lengths) - lengths, offsets[:-1][chosen], lengths], axis=1)


def mapped_rows(IndexMap: Array) -> Array:
    """Return the row of Ins for each row of Out."""
    expect_memory((IndexMap[:, 2].sum(),), 24)
    shifts = IndexMap[:, 1] - IndexMap[:, 0]
    rows = np.repeat(shifts, IndexMap[:, 2])
    return rows + np.arange(len(rows))


class FilterByTag(OpDef, op="filter_by_instag"):
    """Out = the instances of Ins [rows, width] that have a tag in Filter_tag, and their LoD.

    Ins_tag and Filter_tag are int64, one per row; sequence i of Ins_tag has the tags of instance i,
    which is sequence i of Ins, or row i without `is_lod`; instances beyond Ins_tag have no tags.
    LossWeight is f32 [count, 1] of ones, IndexMap int64 [count, 3]. If no instance matches, Out is
    a row of `out_val_if_empty`, LossWeight is 0, and the gradient is zero. Reference:
    filter_by_instag_op.h.
    """

    no_kernel_reason = "the number of rows is data-dependent"

    lod_source = ""

    Ins = reads()
    Ins_lod = reads_lod("Ins", optional=True)
    Ins_tag = reads(no_grad=True)
    Ins_tag_lod = reads_lod("Ins_tag")
    Filter_tag = reads(no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    LossWeight = writes()
    LossWeight_lod = writes_lod("LossWeight")
    IndexMap = writes()
    IndexMap_lod = writes_lod("IndexMap")
    is_lod = required(bool)
    out_val_if_empty = attr(0, WIDE)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Ins = s.Ins
        Ins_lod = s.all("Ins_lod")
        for slot, tags in (("Ins_tag", s.Ins_tag), ("Filter_tag", s.Filter_tag)):
            require_dtype(self.kind, slot, tags, DType.INT64)
        require_one_level(self.kind, "Ins_tag", s.all("Ins_tag_lod"))
        if self.is_lod and Ins_lod:
            require_one_level(self.kind, "Ins", Ins_lod)
        if Ins.rank != 2:
            raise ShapeError(f"{self.kind}: Ins is {Ins}, expected [rows, width]")
        level = [TensorType(DType.INT64, (UNKNOWN,))]
        return {
            "Out": Ins.with_shape((UNKNOWN, Ins.shape[1])),
            "LossWeight": TensorType(DType.FP32, (UNKNOWN, 1)),
            "IndexMap": TensorType(DType.INT64, (UNKNOWN, 3)),
            **dict.fromkeys(("Out_lod", "LossWeight_lod", "IndexMap_lod"), level),
        }

    def numpy(
        self,
        Ins: Array,
        Ins_lod: list[Array] | None,
        Ins_tag: Array,
        Ins_tag_lod: list[Array],
        Filter_tag: Array,
    ) -> dict[str, object]:
        tags, wanted = tag_vector("Ins_tag", Ins_tag), tag_vector("Filter_tag", Filter_tag)
        offsets = instance_offsets(len(Ins), Ins_lod) if self.is_lod else np.arange(len(Ins) + 1)
        row_map = index_map(offsets, matching_sequences(tags, Ins_tag_lod[0], wanted))
        weights = np.ones((len(row_map), 1), np.float32)
        Out = Ins[mapped_rows(row_map)]
        if not len(row_map):
            Out = np.full((1, Ins.shape[1]), self.out_val_if_empty, Ins.dtype)
            weights, row_map = np.zeros((1, 1), np.float32), np.array([[0, 1, 1]])
        level = [np.arange(len(row_map) + 1)]
        return {
            "Out": Out, "Out_lod": [np.append(0, np.cumsum(row_map[:, 2]))],
            "LossWeight": weights, "LossWeight_lod": level,
            "IndexMap": row_map, "IndexMap_lod": level,
        }  # fmt: skip

    def grad(
        self, Ins: Shape, LossWeight: Array, IndexMap: Array, d_Out: Array
    ) -> dict[str, Array]:
        d_Ins = np.zeros(numeric(Ins), d_Out.dtype)
        if LossWeight.any():
            d_Ins[mapped_rows(IndexMap)] = d_Out
        return {"Ins": d_Ins}
