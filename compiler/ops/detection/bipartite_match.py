"""Matching of prior boxes with ground-truth boxes.

Images are sequences of ground-truth boxes; priors are the same for all.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.types import Array, DType, TensorType

LEAST_MATCH = 1e-6
"""Values below this are no match."""


def match_best(distance: Array) -> Array:
    """Return the matching row of each column, or -1: largest entry first, each row once."""
    matches = np.full(distance.shape[1], -1, np.int32)
    left = distance.copy()
    for _ in range(min(distance.shape)):
        row, column = divmod(int(left.argmax()), distance.shape[1])
        if left[row, column] < LEAST_MATCH:
            break
        matches[column] = row
        left[row], left[:, column] = -1, -1
    return matches


def match_every(distance: Array, found: Array, threshold: float) -> Array:
    """Match each unmatched column to its largest row, if that entry reaches a threshold."""
    best = distance.argmax(axis=0)
    distances = distance.max(axis=0)
    free = (found < 0) & (distances >= max(threshold, LEAST_MATCH))
    return np.where(free, best, found).astype(np.int32)


class BipartiteMatch(OpDef, op="bipartite_match"):
    """The matching row of each column of DistMat, or -1, and the entry of the match, or 0.

    DistMat [rows, M] has a sequence of rows per image, or one image; both outputs are [N, M]. The
    largest entry is matched first, then the largest of the remaining rows and columns; with
    `match_type` per_prediction, unmatched columns take their largest row if it is at least
    `dist_threshold`. Reference: bipartite_match_op.cc.
    """

    no_kernel_reason = "pairs are matched sequentially, in descending order"

    DistMat = reads(no_grad=True)
    DistMat_lod = reads_lod("DistMat", optional=True)
    ColToRowMatchIndices = writes()
    ColToRowMatchDist = writes()
    lod_source = ""
    match_type = attr("bipartite")
    dist_threshold = attr(0.5)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        DistMat = s.DistMat
        DistMat_lod = s.all("DistMat_lod")
        if DistMat.rank != 2:
            raise ShapeError(f"bipartite_match: DistMat is {DistMat}, expected [rows, columns]")
        if self.match_type not in ("bipartite", "per_prediction"):
            hint = "expected bipartite or per_prediction"
            raise BadAttribute(f"bipartite_match: match_type is {self.match_type!r}", hint=hint)
        images: Size = DistMat_lod[-1].shape[0] - 1 if DistMat_lod else 1
        distances = DistMat.with_shape((images, DistMat.shape[1]))
        return {
            "ColToRowMatchIndices": distances.with_dtype(DType.INT32),
            "ColToRowMatchDist": distances,
        }

    def numpy(self, DistMat: Array, DistMat_lod: list[Array] | None) -> dict[str, Array]:
        starts = DistMat_lod[-1] if DistMat_lod else np.array([0, len(DistMat)])
        shape = (len(starts) - 1, DistMat.shape[1])
        matches, distances = np.full(shape, -1, np.int32), np.zeros(shape, DistMat.dtype)
        for number in range(len(matches)):
            distance = DistMat[starts[number] : starts[number + 1]]
            if not len(distance):
                continue
            matched = match_best(distance)
            if self.match_type == "per_prediction":
                matched = match_every(distance, matched, self.dist_threshold)
            matches[number] = matched
            seen = distance[np.maximum(matched, 0), np.arange(shape[1])]
            distances[number] = np.where(matched < 0, 0, seen)
        return {"ColToRowMatchIndices": matches, "ColToRowMatchDist": distances}
