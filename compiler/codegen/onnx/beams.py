"""Beam search: the best continuations of each source, and the sentences that they make.

A beam is rows of candidates with two levels of LoD: by source, and by the row of the step before
that each extends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported, declared
from compiler.codegen.onnx.sequences import column, counted, offsets_after
from compiler.ir.graph import Op
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

INDEX = DType.INT64


@converts("beam_search")
def beam_search(nodes: Nodes, op: Op) -> None:
    """`TopK` of each row, then of all rows of a source; rows then in the order of their prefixes.

    Equal scores are ordered by descending prefix, then by ascending candidate, so rows are sorted
    in reverse.
    """
    defn: Any = op.defn
    dtype = op["pre_scores"].type.dtype
    levels = [nodes.name(var) for var in op.inputs["scores_lod"]]
    sources = levels[int(defn.level)]
    for offsets in levels[int(defn.level) + 1 :]:
        sources = nodes.add("Gather", [offsets, sources])
    candidates = _of_rows(nodes, op)
    count = nodes.add("Squeeze", [nodes.add("Shape", [candidates.score])])
    rank = counted(nodes, count)
    every = nodes.add("Reshape", [count, nodes.constant([1])])
    worst = nodes.scalar(-np.inf, dtype)
    score = nodes.add("Where", [candidates.is_valid, candidates.score, worst])
    order = nodes.temporary("order")
    nodes.add_all("TopK", [score, every], [nodes.temporary("best"), order])
    best = candidates.at(order)
    source = _source_of(nodes, sources, best.row)
    end = nodes.add("Sub", [nodes.add("Size", [sources]), nodes.scalar(1, INDEX)])
    source = nodes.add("Where", [best.is_valid, source, end])  # one more source, of none
    best = best.at(_sorted(nodes, source, count))
    source = _source_of(nodes, sources, best.row)
    source = nodes.add("Where", [best.is_valid, source, end])
    place = nodes.add("Sub", [rank, _starts(nodes, source)])
    is_best = nodes.add("Less", [place, nodes.scalar(defn.beam_size, INDEX)])
    is_best = nodes.add("And", [is_best, best.is_valid])
    alive = nodes.add("And", [is_best, nodes.add("Not", [best.is_finished])])
    other = nodes.add("Equal", [column(nodes, source), source])
    both = nodes.add("And", [other, alive])
    is_alive = nodes.add("ReduceMax", [nodes.cast(both, INDEX)], axes=[1], keepdims=0)
    chosen = best.where(nodes.add("And", [is_best, nodes.cast(is_alive, DType.BOOL)]))
    number = nodes.add("Squeeze", [nodes.add("Shape", [chosen.row])])
    _write_selected(nodes, op, chosen.at(_sorted(nodes, chosen.row, number)), sources)


def _write_selected(nodes: Nodes, op: Op, chosen: _Candidates, sources: str) -> None:
    """Write the outputs of a search, whose rows are in the order of the prefixes."""
    for slot, value in (("selected_ids", chosen.word), ("selected_scores", chosen.score)):
        nodes.add("Unsqueeze", [value, nodes.constant([1])], nodes.output(op, slot))
    if op.outputs.get("parent_idx"):
        nodes.cast(chosen.row, DType.INT32, nodes.output(op, "parent_idx"))
    rows = nodes.add("Shape", [nodes.input(op, "scores")], start=0, end=1)
    own = nodes.add("Equal", [column(nodes, counted(nodes, nodes.add("Squeeze", [rows]))),
                              chosen.row])  # fmt: skip
    lengths = nodes.add("ReduceSum", [nodes.cast(own, INDEX), nodes.constant([1])], keepdims=0)
    ends = offsets_after(nodes, lengths)
    for slot in ("selected_ids_lod", "selected_scores_lod"):
        for var, value in zip(op.outputs.get(slot, []), (sources, ends), strict=True):
            nodes.add("Identity", [value], nodes.bind(var))


@dataclass(frozen=True)
class _Candidates:
    """Continuations, one entry each: the row that is continued, its word and the score.

    A finished row continues itself; it has one valid candidate.
    """

    nodes: Nodes
    row: str
    word: str
    score: str
    is_finished: str
    is_valid: str

    def at(self, order: str) -> _Candidates:
        """Those at some places."""
        return self._each("Gather", order)

    def where(self, mask: str) -> _Candidates:
        """Those where a mask is true."""
        return self._each("Compress", mask)

    def _each(self, kind: str, choice: str) -> _Candidates:
        values = (self.row, self.word, self.score, self.is_finished, self.is_valid)
        return _Candidates(
            self.nodes, *(self.nodes.add(kind, [value, choice], axis=0) for value in values)
        )


def _of_rows(nodes: Nodes, op: Op) -> _Candidates:
    """The `beam_size` best candidates of each row, the last row first."""
    defn: Any = op.defn
    dtype = op["pre_scores"].type.dtype
    before, total = (
        nodes.add("Reshape", [nodes.input(op, slot), nodes.constant([-1, 1])])
        for slot in ("pre_ids", "pre_scores")
    )
    sums = nodes.add("Flatten", [nodes.input(op, "scores")], axis=1)
    if not defn.is_accumulated:
        sums = nodes.add("Add", [total, nodes.add("Log", [sums])])
    width = nodes.add("Shape", [sums], start=1, end=2)
    width = nodes.add("Min", [width, nodes.constant([int(defn.beam_size)])])
    score, place = nodes.temporary("best"), nodes.temporary("place")
    nodes.add_all("TopK", [sums, width], [score, place], axis=1)
    word = place
    if op.inputs.get("ids"):
        words = nodes.add("Flatten", [nodes.input(op, "ids")], axis=1)
        word = nodes.add("GatherElements", [nodes.cast(words, INDEX), place], axis=1)
    end = nodes.scalar(defn.end_id, INDEX)
    is_finished = nodes.add("Equal", [nodes.cast(before, INDEX), end])
    score = nodes.cast(nodes.add("Where", [is_finished, total, score]), dtype)
    word = nodes.add("Where", [is_finished, end, word])
    is_first = nodes.add("Equal", [counted(nodes, nodes.add("Squeeze", [width])),
                                   nodes.scalar(0, INDEX)])  # fmt: skip
    is_valid = nodes.add("Or", [nodes.add("Not", [is_finished]), is_first])
    rows = nodes.add("Squeeze", [nodes.add("Shape", [sums], start=0, end=1)])
    last = nodes.add("Sub", [rows, nodes.scalar(1, INDEX)])
    backwards = nodes.add("Sub", [last, counted(nodes, rows)])
    shape = nodes.add("Shape", [word])
    flat = [
        nodes.add("Reshape", [nodes.add("Gather", [each, backwards], axis=0), nodes.constant([-1])])
        for each in (
            nodes.add("Expand", [column(nodes, counted(nodes, rows)), shape]), word, score,
            nodes.add("Expand", [is_finished, shape]), is_valid,
        )
    ]  # fmt: skip
    return _Candidates(nodes, *flat)


@converts("beam_search_decode")
def beam_search_decode(nodes: Nodes, op: Op) -> None:
    """A `Loop` from the last step to the first, whose state is a row for each sentence.

    The sentences of a source begin at the last step at which it has candidates. A sentence ends
    with its first `end_id`; its score is that of its last step. Each source has at least
    `beam_size` sentences, of which the last may have no words.
    """
    if not op.inputs.get("Scores"):
        raise Unsupported("beams without scores")
    dtype = op["Scores"].type.dtype
    outer, inner = (nodes.name(var) for var in op.inputs["Ids_lod"])
    steps = nodes.add("SequenceLength", [nodes.input(op, "Ids")])
    none = np.zeros((0, 0), np.int64)
    start = [
        nodes.constant(np.zeros(0, np.int64)), nodes.constant(np.zeros(0, np.int64)),
        nodes.constant(none), nodes.constant(none.astype(dtype.numpy)),
        nodes.constant(none.astype(bool)),
    ]  # fmt: skip
    names = [nodes.temporary(each) for each in ("row", "source", "word", "score", "spoken")]
    body = _step_back(nodes, op, steps, outer, inner)
    nodes.add_all("Loop", [steps, "", *start], names, body=body)
    _, source, word, score, is_spoken = names
    first = nodes.add("SequenceAt", [outer, nodes.scalar(0, INDEX)])
    sources = nodes.add("Sub", [nodes.add("Size", [first]), nodes.scalar(1, INDEX)])
    order = _best_of_sources(nodes, source, _last_scores(nodes, score, is_spoken))
    source, word, score, is_spoken = (
        nodes.add("Gather", [name, order], axis=0) for name in (source, word, score, is_spoken)
    )
    own = nodes.add("Equal", [column(nodes, counted(nodes, sources)), source])
    counts = nodes.add("ReduceSum", [nodes.cast(own, INDEX), nodes.constant([1])], keepdims=0)
    line = nodes.constant([-1])
    mask = nodes.add("Reshape", [is_spoken, line])
    for slot, value in (("SentenceIds", word), ("SentenceScores", score)):
        flat = nodes.add("Reshape", [value, line])
        nodes.add("Compress", [flat, mask], nodes.output(op, slot), axis=0)
    _write_sentence_levels(nodes, op, source, counts, is_spoken)


def _write_sentence_levels(nodes: Nodes, op: Op, source: str, counts: str, is_spoken: str) -> None:
    """Write the offsets of sources in sentences, and of sentences in words."""
    defn: Any = op.defn
    counts = nodes.add("Max", [counts, nodes.scalar(defn.beam_size, INDEX)])
    groups = offsets_after(nodes, counts)
    number = nodes.add("Squeeze", [nodes.add("Shape", [source])])
    place = nodes.add("Sub", [counted(nodes, number), _starts(nodes, source)])
    place = nodes.add("Add", [place, nodes.add("Gather", [groups, source])])
    lengths = nodes.add(
        "ReduceSum", [nodes.cast(is_spoken, INDEX), nodes.constant([1])], keepdims=0
    )
    every = nodes.add("ReduceSum", [counts])
    zeros = nodes.add("Expand", [nodes.scalar(0, INDEX), every])
    ends = offsets_after(nodes, nodes.add("ScatterElements", [zeros, place, lengths], axis=0))
    for slot in ("SentenceIds_lod", "SentenceScores_lod"):
        for var, value in zip(op.outputs.get(slot, []), (groups, ends), strict=True):
            nodes.add("Identity", [value], nodes.bind(var))


def _step_back(nodes: Nodes, op: Op, steps: str, outer: str, prefixes: str) -> Any:
    """The body of the loop: the words of a step, in front of those of later steps.

    States are the row of each sentence at the step, its source, and its words, scores and whether
    these are spoken, [sentences, later steps].
    """
    defn: Any = op.defn
    inner, dtype = Nodes(nodes.graph, nodes), op["Scores"].type.dtype
    count, more = inner.temporary("iteration"), inner.temporary("more")
    entered, source, word, score, spoken = map(
        inner.temporary, ("row", "source", "word", "score", "spoken")
    )
    one, line = inner.scalar(1, INDEX), inner.constant([-1])
    step = inner.add("Sub", [inner.add("Sub", [steps, one]), count])
    groups, rows = (inner.add("SequenceAt", [array, step]) for array in (outer, prefixes))
    ids, scores = (
        inner.add("Reshape", [inner.add("SequenceAt", [inner.input(op, slot), step]), line])
        for slot in ("Ids", "Scores")
    )
    fresh, their = _rows_of_new(inner, ids, inner.add("Gather", [rows, groups]), source)
    row = inner.add("Concat", [entered, fresh], axis=0)
    sources = inner.add("Concat", [source, their], axis=0)
    shape = inner.add("Concat", [inner.add("Shape", [fresh]),
                                 inner.add("Shape", [word], start=1)], axis=0)  # fmt: skip
    own_words, own_scores = (inner.add("Gather", [each, row]) for each in (ids, scores))
    kinds = (INDEX, INDEX, INDEX, dtype, DType.BOOL)
    tables = [
        inner.add("Concat", [table, inner.add("Expand", [inner.scalar(0, kind), shape])], axis=0)
        for table, kind in zip((word, score, spoken), kinds[2:], strict=True)
    ]
    speaks = _speaks(inner, own_words, tables[2], int(defn.end_id))
    results = [
        inner.add("Concat", [column(inner, own), table], axis=1)
        for own, table in zip((own_words, own_scores, speaks), tables, strict=True)
    ]
    before, again = _source_of(inner, rows, row), inner.add("Identity", [more])
    sizes = ([None], [None], [None, None], [None, None], [None, None])
    entering = [
        declared(count, INDEX, []), declared(more, DType.BOOL, []),
        *map(declared, (entered, source, word, score, spoken), kinds, sizes),
    ]  # fmt: skip
    leaving = [
        declared(again, DType.BOOL, []), *map(declared, (before, sources, *results), kinds, sizes)
    ]  # fmt: skip
    return inner.body("back", entering, leaving)


def _rows_of_new(nodes: Nodes, ids: str, sources: str, known: str) -> tuple[str, str]:
    """The rows of a step whose sources have no sentence yet, and these sources."""
    every = counted(nodes, nodes.add("Squeeze", [nodes.add("Shape", [ids])]))
    owner = _source_of(nodes, sources, every)
    same = nodes.cast(nodes.add("Equal", [column(nodes, owner), known]), INDEX)
    count = nodes.add("ReduceSum", [same, nodes.constant([1])], keepdims=0)
    is_new = nodes.add("Equal", [count, nodes.scalar(0, INDEX)])
    fresh, their = (nodes.add("Compress", [each, is_new], axis=0) for each in (every, owner))
    return fresh, their


def _speaks(nodes: Nodes, words: str, is_spoken: str, end: int) -> str:
    """Whether each sentence speaks its word at a step: any but the end, and its last word."""
    later = nodes.cast(is_spoken, INDEX)
    later = nodes.add("ReduceSum", [later, nodes.constant([1])], keepdims=0)
    is_last = nodes.add("Equal", [later, nodes.scalar(0, INDEX)])
    is_end = nodes.add("Equal", [words, nodes.scalar(end, INDEX)])
    return nodes.add("Or", [nodes.add("Not", [is_end]), is_last])


def _last_scores(nodes: Nodes, score: str, is_spoken: str) -> str:
    """The score of the last spoken word of each sentence."""
    numbers = counted(nodes, nodes.add("Squeeze", [nodes.add("Shape", [score], start=1)]))
    place = nodes.add("Where", [is_spoken, numbers, nodes.scalar(-1, INDEX)])
    last = nodes.add("ReduceMax", [place], axes=[1], keepdims=1)
    return nodes.add("Squeeze", [nodes.add("GatherElements", [score, last], axis=1),
                                 nodes.constant([1])])  # fmt: skip


def _best_of_sources(nodes: Nodes, source: str, score: str) -> str:
    """The order of sentences by source, and best first; equal ones stay in their order."""
    count = nodes.add("Shape", [source])
    order = nodes.temporary("order")
    nodes.add_all("TopK", [score, count], [nodes.temporary("best"), order])
    after = _sorted(nodes, nodes.add("Gather", [source, order]), nodes.add("Squeeze", [count]))
    return nodes.add("Gather", [order, after])


def _source_of(nodes: Nodes, sources: str, row: str) -> str:
    """The source of each row, by the offsets of sources in rows."""
    ends = nodes.add(
        "Slice", [sources, nodes.constant([1]), nodes.constant([np.iinfo(np.int64).max])]
    )
    is_behind = nodes.add("GreaterOrEqual", [column(nodes, row), ends])
    return nodes.add("ReduceSum", [nodes.cast(is_behind, INDEX), nodes.constant([1])], keepdims=0)


def _sorted(nodes: Nodes, group: str, count: str) -> str:
    """The places of entries by ascending group, otherwise in the order in which they are."""
    key = nodes.add("Add", [nodes.add("Mul", [group, count]), counted(nodes, count)])
    order = nodes.temporary("order")
    every = nodes.add("Reshape", [count, nodes.constant([1])])
    nodes.add_all("TopK", [key, every], [nodes.temporary("key"), order], largest=0)
    return order


def _starts(nodes: Nodes, group: str) -> str:
    """How many entries are in earlier groups than each."""
    is_earlier = nodes.add("Greater", [column(nodes, group), group])
    ones = nodes.cast(is_earlier, INDEX)
    return nodes.add("ReduceSum", [ones, nodes.constant([1])], keepdims=0)
