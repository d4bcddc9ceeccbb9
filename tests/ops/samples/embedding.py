"""Samples of looking rows up, and of what is done to sparse gradients."""

import numpy as np

from tests.ops.samples import Sample, numbers

TABLE = numbers(7, 3)
IDS = np.array([[4], [0], [4], [6], [2]])
BATCH = np.array([[4, 0], [4, 6], [1, 1], [0, 2]])
ROWS = {"X": numbers(5, 3, seed=1), "X_rows": np.array([4, 0, 4, 6, 0])}
MORE = {"X": numbers(2, 3, seed=2), "X_rows": np.array([0, 1])}
TERMS = {slot: [ROWS[slot], MORE[slot]] for slot in ROWS}
ONE = np.array([0.4], np.float32)

SAMPLES = [
    Sample("lookup_table", {"W": TABLE, "Ids": IDS}, {}, ("W",)),
    Sample("lookup_table", {"W": TABLE, "Ids": BATCH[..., None]}, {"padding_idx": 4}, ("W",)),
    Sample("lookup_table_v2", {"W": TABLE, "Ids": BATCH}, {}, ("W",)),
    Sample("lookup_table_v2", {"W": TABLE, "Ids": IDS[:, 0]}, {"padding_idx": 0}, ("W",)),
    Sample("densify_rows", ROWS, {"height": 7}),
    Sample("merge_selected_rows", ROWS),
    Sample("merge_rows", ROWS),
    Sample("get_tensor_from_selected_rows", ROWS),
    Sample("row_numbers", ROWS),
    Sample("sum_rows", TERMS),
    Sample("elementwise_mul_rows", ROWS | {"Y": ONE}),
    Sample("scale_rows", ROWS, {"scale": 0.25}),
    Sample("scale_rows", ROWS | {"ScaleTensor": ONE}),
    Sample("clip_rows", ROWS, {"min": -0.3, "max": 0.5}),
    Sample("clip_rows", ROWS, {"min": 0.1, "max": 0.2}),
    Sample("clip_by_norm_rows", ROWS, {"max_norm": 0.7}),
    Sample("clip_by_norm_rows", ROWS, {"max_norm": 70.0}),
]
