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
        before, total = pre_ids.reshape(-1), pre_scores.reshape(-1)
        sums = scores.reshape(len(scores), int(np.prod(scores.shape[1:])))
        words = np.broadcast_to(np.arange(sums.shape[1]), sums.shape) if ids is None else ids
        if not self.is_accumulated:
            sums = total[:, None] + np.log(sums)
        chosen: list[list[Any]] = [[] for _ in range(len(scores))]
        offered = words.reshape(sums.shape)
        for source in range(len(sources) - 1):
            rows = range(int(sources[source]), int(sources[source + 1]))
            best = best_candidates(rows, before, total, offered, sums, self.beam_size, self.end_id)
            if all(word == self.end_id and before[row] == self.end_id for row, word, _ in best):
                best = []
            for row, word, score in best:
                chosen[row].append((word, score))
        flat = [item for items in chosen for item in items]
        parents = [row for row, items in enumerate(chosen) for _ in items]
        ends = np.cumsum([0, *(len(items) for items in chosen)]).astype(np.int64)
        return {
            "selected_ids": np.array([word for word, _ in flat], np.int64).reshape(-1, 1),
            "selected_ids_lod": [sources, ends],
            "selected_scores": np.array([s for _, s in flat], total.dtype).reshape(-1, 1),
            "selected_scores_lod": [sources, ends],
            "parent_idx": np.array(parents, np.int32),
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
        words: list[list[int]] = []
        scores: list[list[float]] = []
        counts: list[int] = []
        for source in range(len(Ids_lod[0][0]) - 1):
            sentences = backtrack_sentences(source, Ids, Ids_lod, Scores, self.end_id)
            sentences += [([], [])] * (self.beam_size - len(sentences))
            sentences.sort(key=lambda each: -each[1][-1] if each[1] else np.inf)
            words += [sentence[0] for sentence in sentences]
            scores += [sentence[1] for sentence in sentences]
            counts.append(len(sentences))
        lengths = [len(sentence) for sentence in words]
        levels = [np.cumsum([0, *sizes]).astype(np.int64) for sizes in (counts, lengths)]
        return {
            "SentenceIds": np.array([word for line in words for word in line], np.int64),
            "SentenceIds_lod": levels,
            "SentenceScores": np.array([s for line in scores for s in line], Scores[0].dtype),
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


def best_candidates(
    rows: Any, before: Any, total: Any, words: Any, sums: Any, count: int, end: int
) -> list[Any]:
    """Return the best candidates of some prefixes as (prefix, token, score), best first.

    Ties are ordered by descending prefix, then by ascending candidate.
    """
    candidates: list[Any] = []
    for row in rows:
        if before[row] == end:
            candidates.append((row, end, total[row]))
        else:
            candidates += [(row, int(words[row, k]), sums[row, k]) for k in range(sums.shape[1])]
    candidates.sort(key=lambda item: (-item[2], -item[0]))
    return candidates[:count]


def backtrack_sentences(source: int, Ids: Any, Ids_lod: Any, Scores: Any, end: int) -> list[Any]:
    """Return tokens and scores of each sentence of a source, by backtracking from the last step."""
    sentences: list[Any] = []
    rows: list[int] = []
    for step in reversed(range(len(Ids))):
        first, last = (int(row) for row in Ids_lod[0][step][source : source + 2])
        prefixes = Ids_lod[1][step]
        if not rows:
            rows = list(range(int(prefixes[first]), int(prefixes[last])))
            sentences = [([], []) for _ in rows]
        for sentence, row in zip(sentences, rows, strict=True):
            word = int(Ids[step].reshape(-1)[row])
            if word != end or not sentence[0]:
                sentence[0].insert(0, word)
                sentence[1].insert(0, Scores[step].reshape(-1)[row])
        rows = (np.searchsorted(prefixes, rows, side="right") - 1).tolist()
    return sentences
