"""Edit distance between token sequences."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.loss.padded import rows_by_length, rows_by_lod
from compiler.ops.type_checks import differ, require_dtype, shown


def distances(hyps: Array, hyp_counts: Array, refs: Array, ref_counts: Array) -> Array:
    """Return the edit distance of each pair of padded lines, all pairs computed together.

    Levenshtein's dynamic programming, vectorised over pairs: a row has the distance of each prefix
    of the reference to the tokens read so far, less the length of the prefix, so that insertions
    along the row are a running minimum. Pairs that are read to their ends are at the end.
    """
    order = np.argsort(-hyp_counts, kind="stable")
    hyps, refs = hyps[order], refs[order]
    steps: Array = np.arange(int(hyps.shape[1]))
    reading: Array = np.searchsorted(-hyp_counts[order], -steps, side="left")
    rows = np.zeros((len(refs), refs.shape[1] + 1), np.int32)
    for step, count in enumerate(reading.tolist()):
        row = rows[:count]
        changed = row[:, :-1] - (refs[:count] == hyps[:count, step, None])
        row += 1
        np.minimum(row[:, 1:], changed, out=row[:, 1:])
        np.minimum.accumulate(row, axis=1, out=row)
    result = np.empty((len(refs), 1), np.int64)
    counts = ref_counts[order, None]
    result[order] = np.take_along_axis(rows, counts, 1) + counts
    return result


class EditDistance(OpDef, op="edit_distance"):
    """Out = the fewest insertions, deletions and substitutions from Hyps to Refs: [pairs, 1].

    `normalized` divides by the length of the reference. Both are [tokens, 1] with LoD, or padded
    [pairs, longest] with HypsLength and RefsLength. SequenceNum is the number of pairs. Reference:
    edit_distance_op.h.
    """

    no_kernel_reason = "its dynamic programming is sequential"

    Hyps = reads()
    Refs = reads()
    HypsLength = reads(optional=True)
    RefsLength = reads(optional=True)
    Hyps_lod = reads_lod("Hyps", optional=True, may_end_early=True)
    Refs_lod = reads_lod("Refs", optional=True, may_end_early=True)
    SequenceNum = writes()
    SequenceNum_lod = writes_lod("SequenceNum")
    Out = writes()
    Out_lod = writes_lod("Out")
    normalized = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType | list[TensorType]]:
        Hyps, Refs = s.Hyps, s.Refs
        Refs_lod = s.all("Refs_lod")
        for slot, tokens in (("Hyps", Hyps), ("Refs", Refs)):
            require_dtype(self.kind, slot, tokens, DType.INT64)
        padded = s.get("HypsLength") is not None and s.get("RefsLength") is not None
        fits = (Hyps.rank, Refs.rank) == (2, 2)
        if not fits or (
            not padded and any(differ(tensor_type.shape[-1], 1) for tensor_type in (Hyps, Refs))
        ):
            shapes = shown(Hyps=Hyps, Refs=Refs)
            raise ShapeError(
                f"{self.kind}: {shapes}, expected [tokens, 1], or lengths for padded input"
            )
        count: Size = UNKNOWN
        if padded or Refs_lod:
            count = Refs.shape[0] if padded or not Refs_lod else Refs_lod[-1].shape[0] - 1
        return {
            "SequenceNum": TensorType(DType.INT64, (1,)),
            "SequenceNum_lod": [],
            "Out": TensorType(DType.FP32, (count, 1)),
            "Out_lod": [],
        }

    def numpy(
        self,
        Hyps: Array,
        Refs: Array,
        HypsLength: Array | None,
        RefsLength: Array | None,
        Hyps_lod: list[Array] | None,
        Refs_lod: list[Array] | None,
    ) -> dict[str, Array | list[Array]]:
        if HypsLength is not None and RefsLength is not None:
            hyps, read = rows_by_length(HypsLength, Hyps.shape[1], "HypsLength")
            refs, meant = rows_by_length(RefsLength, Refs.shape[1], "RefsLength")
        elif Hyps_lod and Refs_lod:
            hyps, read = rows_by_lod(Hyps_lod[-1])
            refs, meant = rows_by_lod(Refs_lod[-1])
        else:
            raise ValueError("edit_distance needs LoD of Hyps and Refs, or both their lengths")
        if len(hyps) != len(refs):
            raise ValueError(f"there are {len(hyps)} sequences in Hyps, but {len(refs)} in Refs")
        counts = meant.sum(1)
        edits = distances(Hyps.reshape(-1)[hyps], read.sum(1), Refs.reshape(-1)[refs], counts)
        if self.normalized and not counts.all():
            empty = int(counts.argmin())
            raise ValueError(f"sequence {empty} of Refs is empty: it cannot be normalized")
        share = edits / counts[:, None] if self.normalized else edits
        return {
            "SequenceNum": np.array([len(refs)], np.int64),
            "SequenceNum_lod": [],
            "Out": share.astype(np.float32),
            "Out_lod": [],
        }
