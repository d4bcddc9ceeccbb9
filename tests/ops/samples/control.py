"""Samples of what control flow is made of: ranks of sequences, branches, steps, beams, host ops."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

LENGTHS = [3, 1, 2]
LOD = [np.array([0, 3, 4, 6])]
TWO_LEVELS = [np.array([0, 2, 3]), np.array([0, 3, 4, 6])]
TABLE = np.array([[0, 3], [2, 2], [1, 1]])
"""The ranks of sequences of 3, 1 and 2 entries."""
MASK = np.array([[True], [False], [True]])
STEP = np.array([1])
BEAM = {
    "pre_ids": np.array([[3], [0], [2]]),
    "pre_scores": numbers(3, 1, low=-3.0, high=-1.0),
    "scores": numbers(3, 4, low=-9.0, high=-2.0, seed=1),
    "scores_lod": [np.array([0, 1, 3]), np.array([0, 1, 2, 3])],
}

SAMPLES = [
    Sample("rnn_memory_helper", {"X": numbers(3, 4)}, {"dtype": 5}, grads=("X",)),
    Sample("lod_rank_table", {"X": numbers(6, 2), "X_lod": LOD}, {"level": 0}),
    Sample("lod_rank_table", {"X": numbers(6, 2), "X_lod": TWO_LEVELS}, {"level": 1}),
    Sample("max_sequence_len", {"RankTable": TABLE}),
    Sample(
        "shrink_rnn_memory",
        {"X": numbers(3, 4), "RankTable": TABLE, "I": STEP},
        grads=("X",),
    ),
    Sample(
        "shrink_rnn_memory",
        {"X": numbers(6, 2), "X_lod": LOD, "RankTable": TABLE, "I": STEP},
        grads=("X",),
    ),
    Sample("reorder_lod_tensor_by_rank", {"X": numbers(3, 4), "RankTable": TABLE}, grads=("X",)),
    Sample("reorder_lod_tensor_by_rank_grad", {"X": numbers(3, 4), "RankTable": TABLE}),
    Sample("reorder_lod_tensor_by_rank", {"X": numbers(6, 2), "X_lod": LOD, "RankTable": TABLE}),
    Sample("split_lod_tensor", {"X": numbers(3, 4), "Mask": MASK}, grads=("X",)),
    Sample("split_lod_tensor", {"X": numbers(6, 2), "X_lod": LOD, "Mask": MASK}),
    Sample(
        "merge_lod_tensor",
        {"X": MASK, "Mask": MASK, "InTrue": numbers(2, 4), "InFalse": numbers(1, 4, seed=1)},
        grads=("InTrue", "InFalse"),
    ),
    Sample(
        "merge_lod_tensor_infer",
        {
            "X": MASK,
            "Mask": MASK,
            "InTrue": numbers(5, 4),
            "InTrue_lod": [np.array([0, 3, 5])],
            "InFalse": numbers(1, 4, seed=1),
            "InFalse_lod": [np.array([0, 1])],
        },
    ),
    Sample(
        "select_input",
        {"X": [numbers(2, 3), numbers(2, 3, seed=1)], "Mask": STEP},
        grads=("X",),
    ),
    Sample("select_output", {"X": numbers(2, 3), "Mask": STEP}, grads=("X",)),
    Sample("step_count", {"X": numbers(3, 2)}),
    Sample("step_index", {"I": STEP, "Count": np.array([4])}),
    Sample("step_index", {"I": STEP, "Count": np.array([4])}, {"reverse": True}),
    Sample("take_step", {"X": numbers(3, 2), "I": STEP}),
    Sample("beam_search", BEAM, {"beam_size": 2, "end_id": 0}),
    Sample(
        "beam_search",
        {**BEAM, "scores": np.exp(BEAM["scores"]), "ids": integers(3, 4, high=9)},
        {"beam_size": 3, "end_id": 0, "is_accumulated": False},
    ),
    Sample(
        "gather_tree",
        {"Ids": integers(4, 2, 3, high=9), "Parents": integers(4, 2, 3, high=3, seed=1)},
    ),
    Sample("print", {"In": numbers(2, 3)}, {"message": "seen"}, grads=("In",)),
    Sample(
        "print_named",
        {"In": numbers(2, 3), "In_lod": [np.array([0, 2])]},
        {"In_name": "x"},
        grads=("In",),
    ),
    Sample("assert", {"Cond": np.array([True]), "Data": [numbers(2)]}),
]
