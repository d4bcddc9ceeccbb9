"""Pairs of items of a query that a score orders rightly and wrongly."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import (
    require_dtype,
    require_same_shape,
)


def pair_weights(score: Array, label: Array, query: Array, weight: Array) -> list[float]:
    """Return the weights of pairs in order, of all others, and of those of equal scores, summed.

    Pairs are rows of one query with different labels; each counts with the mean of its weights.
    Takes memory in proportion to the rows: labels that differ do so in one highest bit of their
    ranks, and for each bit the pairs of a row are ranges of rows sorted by score.
    """
    ranks = np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int64)
    queries = np.unique(query, return_inverse=True)[1].reshape(-1).astype(np.int64)
    totals = [0.0, 0.0, 0.0]
    for bit in range(int(ranks.max(initial=0)).bit_length()):
        group = queries * (ranks.max() + 1) + (ranks >> bit + 1)
        order = np.lexsort((score, group))
        s, g, w = score[order], group[order], weight[order].astype(np.float64)
        is_first = np.append(True, g[1:] != g[:-1])
        key = np.cumsum(is_first | np.append(True, s[1:] != s[:-1]))
        bounds = np.append(np.flatnonzero(is_first), len(g))
        number = np.cumsum(is_first) - 1
        upper = (ranks[order] >> bit & 1).astype(bool)
        sums, lower = np.append(0.0, np.cumsum(w[~upper])), key[~upper]
        own, weights, number = key[upper], w[upper], number[upper]
        start = np.searchsorted(lower, key[bounds[number]])
        less, same = np.searchsorted(lower, own), np.searchsorted(lower, own, "right")
        end = np.searchsorted(lower, key[bounds[number + 1] - 1], "right")
        behind = np.where(np.isnan(s[upper]), start, less)
        for place, (a, b) in enumerate(((start, behind), (behind, end), (less, same))):
            totals[place] += 0.5 * float((weights * (b - a) + sums[b] - sums[a]).sum())
    return totals


class PositiveNegativePair(OpDef, op="positive_negative_pair"):
    """Counts of row pairs of the same query whose scores are ordered as their labels.

    Score is [rows, width], of which `column` is used; Label and QueryID are [rows, 1]. Pairs of
    different labels count with the mean of their weights: PositivePair those in order,
    NegativePair all others, NeutralPair those of equal scores; [1] each, added to the accumulated
    counts. Reference: positive_negative_pair_op.h.
    """

    no_kernel_reason = "its groups of rows are data-dependent"

    Score = reads()
    Label = reads()
    QueryID = reads()
    AccumulatePositivePair = reads(optional=True)
    AccumulateNegativePair = reads(optional=True)
    AccumulateNeutralPair = reads(optional=True)
    Weight = reads(optional=True)
    PositivePair = writes()
    NegativePair = writes()
    NeutralPair = writes(optional=True)
    column = attr(0)

    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Score = s.Score
        require_dtype(self.kind, "QueryID", s.QueryID, DType.INT64)
        require_same_shape(self.kind, Label=s.Label, QueryID=s.QueryID)
        width = Score.shape[-1]
        if Score.rank != 2 or (isinstance(width, int) and not -width <= self.column < width):
            raise ShapeError(f"{self.kind}: Score is {Score}, expected a column {self.column}")
        one = Score.with_shape((1,))
        return {"PositivePair": one, "NegativePair": one, "NeutralPair": one}

    def numpy(
        self,
        Score: Array,
        Label: Array,
        QueryID: Array,
        AccumulatePositivePair: Array | None,
        AccumulateNegativePair: Array | None,
        AccumulateNeutralPair: Array | None,
        Weight: Array | None,
    ) -> dict[str, Array]:
        score, label, query = Score[:, self.column], Label.reshape(-1), QueryID.reshape(-1)
        weight = np.ones_like(score) if Weight is None else Weight.reshape(-1)
        counts = pair_weights(score, label, query, weight)
        before = AccumulatePositivePair, AccumulateNegativePair, AccumulateNeutralPair
        return {
            name: np.array([count], Score.dtype) + (0 if so_far is None else so_far.reshape(1))
            for name, count, so_far in zip(
                ("PositivePair", "NegativePair", "NeutralPair"), counts, before, strict=True
            )
        }
