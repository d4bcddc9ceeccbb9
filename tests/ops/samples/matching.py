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

NODES = np.array(
    [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 0], [7, 2, 1, 0, 0], [8, 2, 1, 0, 0],
     [9, 2, 2, 0, 0]],
    np.int32,
)  # fmt: skip
LEAVES = {
    "X": np.array([[2], [0], [1]], np.int64),
    "Travel": np.array([[1, 3], [1, 4], [2, 0]], np.int32),
    "Layer": np.arange(1, 6, dtype=np.int32).reshape(5, 1),
}
LAYERS = {"neg_samples_num_list": [1, 2], "layer_offset_lod": [0, 2, 5], "seed": 5}
RANKS = {
    "X": numbers(3, 2),
    "RankOffset": np.array([[1, 1, 0, 2, 1], [0, 1, 0, 2, 1], [2, 2, 2, 1, 0]], np.int32),
    "RankParam": numbers(8, 3, seed=1),
}
HASHED = {
    "X": np.array([[3], [1], [4], [1], [5]], np.int32),
    "X_lod": [np.array([0, 3, 4, 5])],
    "W": numbers(24, 1),
}
HASHES = {"num_emb": 8, "rand_len": 4, "space_len": 20, "pyramid_layer": 3, "lr": 0.5}
UPDATED = {
    **HASHED,
    "DropPos": np.array([[1], [0], [1], *[[0]] * 12], np.int32),
    "X_Temp_Out": HASHED["X"].astype(np.float32),
    "Out@GRAD": numbers(4, 8, seed=2),
}

SAMPLES = [
    Sample("tdm_child", {"X": np.array([[0, 2], [1, 5]]), "TreeInfo": NODES}, {"child_nums": 2}),
    Sample("tdm_sampler", LEAVES, LAYERS),
    Sample("tdm_sampler", LEAVES, {**LAYERS, "output_positive": False, "dtype": 3}),
    Sample("rank_attention", RANKS, {"MaxRank": 2}, ("RankParam",)),
    Sample("pyramid_hash", HASHED, {**HASHES, "is_training": 1}),
    Sample("pyramid_hash", {**HASHED, "X": np.repeat(HASHED["X"], 2, axis=1)}, HASHES),
    Sample("pyramid_hash", HASHED, {**HASHES, "drop_out_percent": 0.5}),
    Sample("pyramid_hash_grad", UPDATED, HASHES),
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
    Sample(
        "sequence_topk_avg_pooling",
        PICTURES
        | {"X_lod": [np.array([0, 12, 12, 24])], "ROW_lod": [np.array([0, 2, 2, 5])]}
        | {"COLUMN_lod": [np.array([0, 3, 3, 5])]},
        {"topks": [1, 3], "channel_num": 2},
        ("X",),
    ),
    Sample("var_conv_2d", {**PICTURES, "W": numbers(3, 12, seed=3)}, CONVOLVED, ("X", "W")),
    Sample("conv_shift", {"X": numbers(3, 5), "Y": numbers(3, 3, seed=1)}, {}, ("X", "Y")),
    Sample("conv_shift", {"X": numbers(2, 5), "Y": numbers(2, 5, seed=1)}, {}, ("X", "Y")),
]
