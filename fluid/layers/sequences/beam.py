"""Beam search: selection step and backtracking."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.checks import check_type, check_variable_and_dtype

__all__ = ["beam_search", "beam_search_decode", "gather_tree"]


def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """Select the `beam_size` best continuations per source: their ids and scores [rows, 1].

    `ids` and `scores` [prefixes, candidates] continue `pre_ids` and `pre_scores` [prefixes, 1];
    scores are accumulated log-probabilities if `is_accumulated`, else probabilities. LoD level
    `level` of `scores` groups the prefixes by source. Both results have two LoD levels, as
    `beam_search_decode` requires. `return_parent_idx` also returns the prefix index of each row.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ["int64"], "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", ["float32", "float64"], "beam_search")
    check_type(ids, "ids", (Variable, type(None)), "beam_search")
    check_variable_and_dtype(scores, "scores", ["float32", "float64"], "beam_search")
    helper = LayerHelper("beam_search", name=name)
    best_scores = helper.create_variable_for_type_inference(pre_scores.dtype)
    best_ids = helper.create_variable_for_type_inference(pre_ids.dtype)
    parents = helper.create_variable_for_type_inference("int32")
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    helper.append_op(
        "beam_search",
        inputs=inputs,
        outputs={
            "selected_ids": best_ids,
            "selected_scores": best_scores,
            "parent_idx": parents,
        },
        attrs={
            "level": level,
            "beam_size": beam_size,
            "end_id": end_id,
            "is_accumulated": is_accumulated,
        },
    )
    return (best_ids, best_scores, parents) if return_parent_idx else (best_ids, best_scores)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Backtrack the arrays `ids` and `scores` of a beam search to full sentences and word scores.

    The results have two LoD levels: sentences per source, best first, and words per sentence.
    """
    check_variable_and_dtype(ids, "ids", ["int64"], "beam_search_decode")
    check_variable_and_dtype(scores, "scores", ["float32"], "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    sentences = helper.create_variable_for_type_inference(ids.dtype)
    totals = helper.create_variable_for_type_inference(scores.dtype)
    helper.append_op(
        "beam_search_decode",
        inputs={"Ids": ids, "Scores": scores},
        outputs={"SentenceIds": sentences, "SentenceScores": totals},
        attrs={"beam_size": beam_size, "end_id": end_id},
    )
    return sentences, totals


def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """Backtrack beams: follow `parents` through `ids`, both [steps, batch, beams].

    >>> import fluid
    >>> ids, parents = (fluid.data(n, [5, 2, 3], "int64") for n in ("ids", "parents"))
    >>> fluid.layers.gather_tree(ids, parents).shape
    (5, 2, 3)
    """
    check_variable_and_dtype(ids, "ids", ["int32", "int64"], "gather_tree")
    check_variable_and_dtype(parents, "parents", ["int32", "int64"], "gather_tree")
    helper = LayerHelper("gather_tree")
    return helper.append_result("gather_tree", {"Ids": ids, "Parents": parents})
