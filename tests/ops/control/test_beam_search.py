"""Beam search: candidates and sentences of random beams, as plain loops select them."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from compiler.ir.opdef import find
from compiler.ops.control.beam_search import row_offsets

END = 0


def selected(beam_size: int, accumulated: bool, feed: dict[str, Any]) -> list[list[Any]]:
    """The candidates (word, score) of each prefix: per source the best of a sorted list."""
    before, total, scores = feed["pre_ids"][:, 0], feed["pre_scores"][:, 0], feed["scores"]
    sums = scores if accumulated else total[:, None] + np.log(scores)
    words = feed["ids"] if feed["ids"] is not None else np.arange(sums.shape[1]) + 0 * sums
    chosen: list[list[Any]] = [[] for _ in before]
    for first, last in pairwise(row_offsets(feed["scores_lod"], 0)):
        items = [
            (row, words[row, column], sums[row, column])
            for row in range(first, last)
            for column in range(sums.shape[1])
            if before[row] != END
        ]
        items += [(row, END, total[row]) for row in range(first, last) if before[row] == END]
        best = sorted(items, key=lambda item: (-item[2], -item[0]))[:beam_size]
        if any(before[row] != END for row, _, _ in best):
            for row, word, score in best:
                chosen[row].append((word, score))
    return chosen


@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("beam_size", [1, 3, 5])
def test_the_best_candidates_of_each_source(beam_size: int, accumulated: bool) -> None:
    """Equal scores, finished prefixes, sources without prefixes, more and fewer candidates."""
    attrs = {"beam_size": beam_size, "end_id": END, "is_accumulated": accumulated}
    op = find("beam_search")(attrs)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sizes = [1, *rng.integers(0, 4, 2)]
        rows, width = sum(sizes), int(rng.integers(1, 9))
        scores = rng.integers(1, 5, (rows, width)).astype("f4")
        feed = {
            "pre_ids": rng.integers(0, 3, (rows, 1)),
            "pre_scores": -rng.integers(0, 5, (rows, 1)).astype("f4"),
            "ids": rng.integers(0, 6, (rows, width)) if seed % 3 else None,
            "scores": -scores if accumulated else scores,
            "scores_lod": [np.cumsum([0, *sizes]), np.arange(rows + 1)],
        }
        expected = selected(beam_size, accumulated, feed)
        result = op.numpy(**feed)
        pairs = [pair for items in expected for pair in items]
        assert result["selected_ids"][:, 0].tolist() == [word for word, _ in pairs]
        assert result["selected_scores"][:, 0].tolist() == [score for _, score in pairs]
        assert result["parent_idx"].tolist() == [
            row for row, items in enumerate(expected) for _ in items
        ]
        ends = np.cumsum([0, *map(len, expected)])
        assert result["selected_ids_lod"][1].tolist() == ends.tolist()


def test_scores_that_are_not_numbers_come_last() -> None:
    op = find("beam_search")({"beam_size": 2, "end_id": END})
    scores = np.full((1, 6), np.nan, "f4")
    scores[0, 4] = -3
    result = op.numpy(
        np.array([[5]]), np.zeros((1, 1), "f4"), None, scores, [np.array([0, 1]), np.array([0, 1])]
    )
    assert result["selected_ids"][:, 0].tolist()[0] == 4


def sentences_of(source: int, steps: list[Any], end: int) -> list[tuple[list[int], list[float]]]:
    """The sentences of one source, each followed from its last candidate to the first step."""
    latest = len(steps) - 1
    rows: list[int] = []
    while latest >= 0 and not rows:
        words, scores, prefixes, ends = steps[latest]
        rows = [*range(ends[prefixes[source]], ends[prefixes[source + 1]])]
        latest -= 1
    sentences = list[tuple[list[int], list[float]]]()
    for row in rows:
        pairs, parent = list[tuple[int, float]](), row
        for words, scores, _, ends in reversed(steps[: latest + 2]):
            if words[parent] != end or not pairs:
                pairs.append((words[parent], scores[parent]))
            parent = next(p for p in range(len(ends) - 1) if ends[p] <= parent < ends[p + 1])
        sentences.append(([w for w, _ in pairs[::-1]], [s for _, s in pairs[::-1]]))
    return sorted(sentences, key=lambda sentence: -sentence[1][-1])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_sentences_of_each_source(beam_size: int) -> None:
    """Prefixes without continuation, sources that end early, ends in the middle, equal scores."""
    op = find("beam_search_decode")({"beam_size": beam_size, "end_id": END})
    for seed in range(60):
        rng = np.random.default_rng(seed)
        counts, steps = [int(n) for n in rng.integers(1, 4, 3)], list[Any]()
        for _ in range(rng.integers(1, 6)):
            prefixes = np.cumsum([0, *counts])
            ends = np.cumsum([0, *rng.integers(0, 3, prefixes[-1])])
            words, scores = rng.integers(0, 4, ends[-1]), -rng.integers(0, 5, ends[-1])
            steps.append((words, scores.astype("f4"), prefixes, ends))
            counts = [int(ends[last] - ends[first]) for first, last in pairwise(prefixes)]
        result = op.numpy(
            [words[:, None] for words, *_ in steps],
            [[step[2] for step in steps], [step[3] for step in steps]],
            [scores[:, None] for _, scores, *_ in steps],
        )
        expected = list[tuple[list[int], list[float]]]()
        numbers = list[int]()
        for source in range(3):
            sentences = sentences_of(source, steps, END)
            sentences += [([], [])] * (beam_size - len(sentences))
            expected += sentences
            numbers.append(len(sentences))
        assert result["SentenceIds"].tolist() == [w for words, _ in expected for w in words]
        assert result["SentenceScores"].tolist() == [s for _, scores in expected for s in scores]
        lengths = [len(words) for words, _ in expected]
        assert result["SentenceIds_lod"][0].tolist() == np.cumsum([0, *numbers]).tolist()
        assert result["SentenceIds_lod"][1].tolist() == np.cumsum([0, *lengths]).tolist()
