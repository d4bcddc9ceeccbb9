"""Samples of ops on what parameter servers hold that reach no server themselves."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

ROWS = np.array([5, 0, 3, 5, 1])
IDS = np.array([[4], [1], [0]])

SAMPLES = [
    Sample("split_byref", {"X": numbers(6, 3)}, {"sections": [2, 3, 1]}),
    Sample("split_byref", {"X": numbers(6)}, {"num": 2}),
    Sample(
        "split_selected_rows",
        {"X": numbers(5, 2), "X_rows": ROWS},
        {"height_sections": [2, 3, 1]},
    ),
    Sample("split_ids", {"Ids": [integers(4, 1, high=9), IDS]}, {"Out_names": ["a", "b"]}),
    Sample(
        "split_ids",
        {"Ids": [numbers(5, 2)], "Ids_rows": [ROWS]},
        {"Out_names": ["a", "b"]},
    ),
    Sample(
        "merge_ids",
        {"Ids": [IDS, IDS[:1]], "Rows": [IDS[:2], IDS[2:]], "X": [numbers(2, 3), numbers(1, 3)]},
    ),
    Sample("lookup_sparse_table", {"W": numbers(3, 4), "Ids": IDS}, {"servers": 2}),
    Sample("pull_box_sparse", {"Ids": [IDS, IDS[:2]]}, {"size": 4}),
    Sample("ref_by_trainer_id", {"X": [numbers(2, 3), numbers(2, 3)], "TrainerId": np.array([1])}),
    Sample("fake_init", {}, {"shape": [4, 2]}),
]
