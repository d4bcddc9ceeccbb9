"""Samples of ops that match rows, sequences and trees."""

import numpy as np

from tests.ops.samples import Sample, numbers

TALL, WIDE = [np.array([0, 2, 5])], [np.array([0, 3, 5])]
PICTURES = {
    "X": numbers(24, 1),
    "X_lod": [np.array([0, 12, 24])],
    "ROW": numbers(5, 1),
    "ROW_lod": TALL,
    "COLUMN": numbers(5, 1),
    "COLUMN_lod": WIDE,
}
CONVOLVED = {"InputChannel": 2, "OutputChannel": 3, "KernelH": 2, "KernelW": 3, "StrideW": 2}
EDGES = np.array([[[1, 2], [1, 3], [1, 4], [3, 5]], [[1, 2], [2, 3], [0, 0], [0, 0]]], np.int32)
TREES = {"NodesVector": numbers(2, 5, 3), "EdgeSet": EDGES, "Filter": numbers(3, 3, 2, 4, seed=1)}

SAMPLES = [
    Sample("tree_conv", TREES, {}, ("NodesVector", "Filter")),
    Sample("tree_conv", TREES, {"max_depth": 3}, ("NodesVector", "Filter")),
    Sample(
        "match_matrix_tensor",
        {
            "X": numbers(5, 3),
            "X_lod": TALL,
            "Y": numbers(5, 3, seed=1),
            "Y_lod": WIDE,
            "W": numbers(3, 2, 3, seed=2),
        },
        {"dim_t": 2},
        ("X", "Y", "W"),
    ),
    Sample("sequence_topk_avg_pooling", PICTURES, {"topks": [1, 3], "channel_num": 2}, ("X",)),
    Sample("var_conv_2d", {**PICTURES, "W": numbers(3, 12, seed=3)}, CONVOLVED, ("X", "W")),
    Sample("conv_shift", {"X": numbers(3, 5), "Y": numbers(3, 3, seed=1)}, {}, ("X", "Y")),
    Sample("conv_shift", {"X": numbers(2, 5), "Y": numbers(2, 5, seed=1)}, {}, ("X", "Y")),
]
