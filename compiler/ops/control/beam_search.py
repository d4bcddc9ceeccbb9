"""Beam search: selection of candidates in each step, and decoding of sentences.

A beam is a tensor of candidates, one per row, with two LoD levels: candidates by source, and
candidates by the prefix of the previous step that they extend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, required, writes, writes_lod
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.control.rank_table import OFFSETS
from compiler.ops.type_checks import require_same_shape


class BeamSearch(OpDef, op="beam_search"):
    """Select the `beam_size` best continuations of each source among candidates of live prefixes.

    `ids` and `scores` [prefixes, candidates] belong to `pre_ids` and `pre_scores` [prefixes, 1];
    without `ids` they are the column indices. Scores are cumulative if `is_accumulated`, else
    probabilities, whose logarithm is added to the prefix's score. A finished prefix is extended by
    `end_id` with an unchanged score; a source whose prefixes are all finished has no more
    candidates. `parent_idx` is the prefix of each candidate. Reference: math/beam_search.cc.
    """

    no_kernel_reason = "the number of candidates is data-dependent"

    lod_source = ""

    pre_ids = reads(no_grad=True)
    pre_scores = reads(no_grad=True)
    ids = reads(optional=True, no_grad=True)
    scores = reads(no_grad=True)
    scores_lod = reads_lod("scores")
    selected_ids = writes()
    selected_ids_lod = writes_lod("selected_ids")
    selected_scores = writes()
    selected_scores_lod = writes_lod("selected_scores")
    parent_idx = writes(optional=True)
    level = attr(0)
    beam_size = required(int)
    end_id = required(int)
    is_accumulated = attr(True)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {
            "selected_ids": TensorType(DType.INT64, (UNKNOWN, 1)),
            "selected_ids_lod": [OFFSETS, OFFSETS],
            "selected_scores": TensorType(s.pre_scores.dtype, (UNKNOWN, 1)),
            "selected_scores_lod": [OFFSETS, OFFSETS],
            "parent_idx": TensorType(DType.INT32, (UNKNOWN,)),
        }

    def numpy(
        self,
        pre_ids: Array,
        pre_scores: Array,
        ids: Array | None,
        scores: Array,
        scores_lod: list[Array],
    ) -> dict[str, Any]:
        sources = row_offsets(scores_lod, self.level)
        total, is_ended = pre_scores.reshape(-1), pre_ids.reshape(-1) == self.end_id
        sums = scores.reshape(len(scores), int(np.prod(scores.shape[1:])))
        if not self.is_accumulated:
            sums = total[:, None] + np.log(sums)
        rows, columns, values = candidates(sums, total, is_ended, self.beam_size)
        words = columns if ids is None else ids.reshape(sums.shape)[rows, columns]
        words = np.where(is_ended[rows], self.end_id, words)
        owners = np.searchsorted(sources, rows, side="right") - 1
        order = np.lexsort((-values, owners))
        order = order[ranks(owners[order]) < self.beam_size]
        is_live = ~is_ended[rows[order]]
        order = order[np.isin(owners[order], owners[order][is_live])]
        order = order[np.argsort(rows[order], kind="stable")]
        parents = rows[order]
        ends = np.cumsum([0, *np.bincount(parents, minlength=len(scores))]).astype(np.int64)
        return {
            "selected_ids": words[order].astype(np.int64).reshape(-1, 1),
            "selected_ids_lod": [sources, ends],
            "selected_scores": values[order].astype(total.dtype).reshape(-1, 1),
            "selected_scores_lod": [sources, ends],
            "parent_idx": parents.astype(np.int32),
        }


class BeamSearchDecode(OpDef, op="beam_search_decode"):
    """Decode the sentences of the beams of all steps, the best of each source first.

    Ids and Scores are arrays with a beam per step. A sentence ends with its first `end_id`, or with
    the last step. Reference: beam_search_decode_op.h.
    """

    no_kernel_reason = "the lengths of sentences are data-dependent"

    lod_source = ""

    Ids = reads(no_grad=True)
    Ids_lod = reads_lod("Ids")
    Scores = reads(no_grad=True)
    SentenceIds = writes()
    SentenceIds_lod = writes_lod("SentenceIds")
    SentenceScores = writes()
    SentenceScores_lod = writes_lod("SentenceScores")
    beam_size = required(int)
    end_id = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        Ids_lod, Scores = s.all("Ids_lod"), s.get("Scores")
        if len(Ids_lod) < 2:
            raise ShapeError(f"{self.kind}: Ids has {len(Ids_lod)} levels of LoD, expected 2")
        dtype = DType.FP32 if Scores is None else Scores.dtype
        return {
            "SentenceIds": TensorType(DType.INT64, (UNKNOWN,)),
            "SentenceIds_lod": [OFFSETS, OFFSETS],
            "SentenceScores": TensorType(dtype, (UNKNOWN,)),
            "SentenceScores_lod": [OFFSETS, OFFSETS],
        }

    def numpy(
        self, Ids: list[Array], Ids_lod: list[list[Array]], Scores: list[Array]
    ) -> dict[str, Any]:
        owners, words, scores, is_in = backtracked(Ids, Ids_lod, Scores, self.end_id)
        order = np.lexsort((-scores[-1], owners))
        sentences = np.bincount(owners, minlength=len(Ids_lod[0][0]) - 1)
        counts = np.maximum(sentences, self.beam_size)
        lengths = np.zeros(int(counts.sum()), np.int64)
        starts = np.cumsum(counts) - counts
        lengths[starts[owners[order]] + ranks(owners[order])] = is_in[:, order].sum(axis=0)
        levels = [np.concatenate([[0], np.cumsum(sizes)]) for sizes in (counts, lengths)]
        chosen = is_in[:, order].T
        return {
            "SentenceIds": words[:, order].T[chosen],
            "SentenceIds_lod": levels,
            "SentenceScores": scores[:-1, order].T[chosen],
            "SentenceScores_lod": levels,
        }


class GatherTree(OpDef, op="gather_tree"):
    """Out[t, b, k] = the token at step t of the beam that ends as beam k of batch entry b.

    Ids and Parents are [steps, batch, beams]. Reference: gather_tree_op.h.
    """

    no_kernel_reason = "its backtracking is sequential"

    Ids = reads(no_grad=True)
    Parents = reads(no_grad=True)
    Out = writes(shares_lod=False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_same_shape(self.kind, Ids=s.Ids, Parents=s.Parents)
        return s.Ids

    def numpy(self, Ids: Array, Parents: Array) -> Array:
        Out = Ids.copy()
        beams: Array = np.indices(Ids.shape[1:])[1]
        for step in reversed(range(len(Ids))):
            Out[step] = np.take_along_axis(Ids[step], beams, axis=1)
            beams = np.take_along_axis(Parents[step], beams, axis=1)
        return Out


def row_offsets(levels: list[Any], level: int) -> Array:
    """Return the offsets of one LoD level in rows.

    >>> row_offsets([np.array([0, 1, 3]), np.array([0, 2, 3, 7])], 0).tolist()
    [0, 2, 7]
    """
    rows = levels[level]
    for offsets in levels[level + 1 :]:
        rows = offsets[rows]
    return rows


def candidates(
    sums: Array, total: Array, is_ended: Array, count: int
) -> tuple[Array, Array, Array]:
    """What may be among the best `count` of a source: prefix, candidate and score of each.

    Those are the best `count` of each live prefix, and others as good as the last of them; a
    finished prefix has one, with the score `total`. Ordered by descending prefix, then by ascending
    candidate, as equal scores are.
    """
    width = sums.shape[1]
    if is_ended.any():
        sums = np.where(is_ended[:, None], -np.inf, sums)
        sums[is_ended, 0] = total[is_ended]
    offered = np.ones(sums.shape, np.bool_)
    if width > count:
        offered = ~(sums < -np.partition(-sums, count - 1, axis=1)[:, count - 1 : count])
    offered[is_ended, 1:] = False
    offered[is_ended, 0] = True
    places = np.flatnonzero(offered[::-1])
    rows, columns = len(sums) - 1 - places // width, places % width
    return rows, columns, sums[rows, columns]


def ranks(owners: Array) -> Array:
    """The rank of each element among those of its owner, where owners are in order.

    >>> ranks(np.array([0, 0, 2, 2, 2])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(len(owners)) - np.searchsorted(owners, owners)


def backtracked(
    Ids: list[Array], Ids_lod: list[list[Array]], Scores: list[Array], end: int
) -> tuple[Array, Array, Array, Array]:
    """The sentences of all sources, followed back from the last step that has candidates of each.

    Returns the source of each sentence; its words and scores [steps, sentences]; and which of them
    are in the sentence: its last one, and those before it that are not `end`. The scores have one
    more row, those of the last words.
    """
    is_started = np.zeros(len(Ids_lod[0][0]) - 1, bool)
    owners: Array = np.zeros(0, np.int64)
    rows: Array = owners
    columns: list[tuple[Array, Array, Array]] = []
    final: list[Array] = [np.zeros(0, Scores[0].dtype)]
    for step in reversed(range(len(Ids))):
        prefixes, known = Ids_lod[1][step], len(rows)
        if not is_started.all():
            firsts: Array = prefixes[Ids_lod[0][step]]
            counts: Array = np.diff(firsts)
            every: Array = np.arange(len(counts)).repeat(counts)
            is_first = ~is_started[every]
            owners = np.concatenate([owners, every[is_first]])
            rows = np.concatenate([rows, np.arange(int(firsts[0]), int(firsts[-1]))[is_first]])
            is_started |= counts > 0
        words, scores = Ids[step].reshape(-1)[rows], Scores[step].reshape(-1)[rows]
        final.append(scores[known:])
        columns.append((words, scores, (words != end) | (np.arange(len(rows)) >= known)))
        rows = np.searchsorted(prefixes, rows, side="right") - 1
    words, scores, is_in = (
        _stacked([column[part] for column in reversed(columns)], len(owners)) for part in range(3)
    )
    return owners, words, np.concatenate([scores, [np.concatenate(final)]]), is_in


def _stacked(rows: list[Array], width: int) -> Array:
    """Rows of different lengths as an array, zeros behind the shorter ones."""
    return np.stack([np.pad(row, (0, width - len(row))) for row in rows])
