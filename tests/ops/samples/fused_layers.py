"""Samples of fully connected, transformer and sequence ops that passes of Paddle write."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X, W, B = numbers(3, 4), numbers(4, 5, seed=1), numbers(5, seed=2)
IMAGE, FILTER = numbers(2, 3, 5, 4), numbers(6, 3, 3, 3, seed=1)
LOD = [np.array([0, 2, 3, 6])]
ROWS = numbers(6, 3)
TABLE, IDS = numbers(7, 3), integers(6, 1, high=7)
VECTORS = {"Scale": numbers(5, seed=4), "Bias": numbers(5, seed=5)}
HEADS = {
    "Input": numbers(2, 3, 8),
    "W": numbers(8, 3, 8, seed=1),
    "Bias": numbers(3, 8, seed=2),
    "BiasQK": numbers(2, 2, 3, 3, seed=3),
}


def memory(**inputs):
    """Return the inputs of a recurrent op: its weights, its states, and others."""
    states = {"H0": numbers(3, 2, seed=3), "C0": numbers(3, 2, seed=4)}
    return {"WeightH": numbers(2, 8, seed=2), "Bias": numbers(1, 14, seed=6), **states, **inputs}


def pooled_gradient(**attrs):
    """Return a sample of the gradient of `fused_embedding_seq_pool`."""
    inputs = {"W": TABLE, "Ids": IDS, "Ids_lod": LOD, "Out@GRAD": numbers(3, 3, seed=1)}
    return Sample("fused_embedding_seq_pool_grad", inputs, attrs)


def attention(kind, **inputs):
    """Return a sample of `attention_lstm`, or of its steps."""
    known = {
        "X": ROWS,
        "X_lod": LOD,
        "C0": numbers(3, 2, seed=1),
        "AttentionWeight": numbers(5, 1, seed=2),
        "LSTMWeight": numbers(5, 8, seed=3),
        "LSTMBias": numbers(1, 8, seed=4),
    }
    return Sample(kind, {**known, **inputs})


SAMPLES = [
    Sample("fc", {"Input": X, "W": W}),
    Sample("fc", {"Input": numbers(2, 3, 4), "W": W, "Bias": B}, {"in_num_col_dims": 2}),
    Sample(
        "fc",
        {"Input": X, "W": numbers(8, 9), "Bias": B},
        {"padding_weights": True, "activation_type": "relu"},
    ),
    Sample(
        "fused_fc_elementwise_layernorm",
        {"X": X, "W": W, "Bias0": B, "Y": numbers(3, 5, seed=3), "Scale": B, "Bias1": B},
        {"activation_type": "relu", "epsilon": 1e-3},
    ),
    Sample("fused_fc_elementwise_layernorm", {"X": X, "W": W, "Y": numbers(3, 5, seed=3)}),
    Sample(
        "fusion_repeated_fc_relu",
        {"X": X, "W": [W, numbers(5, 2), numbers(2, 3)], "Bias": [B, numbers(2), numbers(1, 3)]},
    ),
    Sample("fusion_squared_mat_sub", {"X": X, "Y": W}, {"scalar": 0.7}),
    Sample(
        "skip_layernorm",
        {"X": numbers(2, 3, 5), "Y": numbers(2, 3, 5, seed=1), **VECTORS},
        {"begin_norm_axis": 2},
    ),
    Sample(
        "fused_embedding_eltwise_layernorm",
        {
            "Ids": [integers(2, 3, 1, high=7), integers(2, 3, 1, high=6, seed=1)],
            "Embs": [numbers(7, 5), numbers(6, 5, seed=1)],
            **VECTORS,
        },
    ),
    Sample("linear", {"X": X, "Y": W, "Bias": B}, {}, ("X", "Y", "Bias")),
    Sample(
        "linear",
        {"X": numbers(2, 3, 4), "Y": numbers(2, 2, 5, seed=1), "Bias": B},
        {"x_num_col_dims": 2, "y_num_col_dims": 2},
        ("X", "Y", "Bias"),
    ),
    Sample(
        "scaled_dot_product_attention",
        {"Q": numbers(2, 3, 4), "K": numbers(2, 5, 4, seed=1), "V": numbers(2, 5, 3, seed=2)},
        {"scale": 0.5, "factor": 2.0},
        ("Q", "K", "V"),
    ),
    Sample(
        "scaled_dot_product_attention",
        {
            "Q": numbers(2, 3, 2, 4),
            "K": numbers(2, 2, 4, 5, seed=1),
            "V": numbers(2, 5, 2, 3, seed=2),
            "Mask": numbers(2, 1, 3, 5, seed=3),
        },
        {
            "q_axes": [0, 2, 1, 3],
            "k_axes": [0, 1, 3, 2],
            "v_axes": [0, 2, 1, 3],
            "out_axes": [0, 2, 1, 3],
        },
        ("Q", "K", "V"),
    ),
    Sample(
        "scaled_dot_product_attention",
        {
            "Q": numbers(2, 3, 5, 4),
            "K": numbers(2, 3, 5, 4, seed=1),
            "V": numbers(2, 3, 5, 2, seed=2),
            "Key": np.array([1, 0, 2**40 + 7, 0]),
        },
        {
            "is_causal": True,
            "dropout_prob": 0.25,
            "dropout_implementation": "upscale_in_train",
            "place": 2,
            **{f"{name}_axes": [0, 1, 2, 3] for name in ("q", "k", "v", "out")},
        },
        ("Q", "K", "V"),
    ),
    Sample("multihead_matmul", HEADS, {"alpha": 0.5, "head_number": 2}),
    Sample("conv2d_fusion", {"Input": IMAGE, "Filter": FILTER, "Bias": numbers(6)}),
    Sample(
        "conv2d_epilogue",
        {"Input": IMAGE, "Filter": FILTER, "ResidualData": numbers(2, 6, 5, 4, seed=3)},
        {"paddings": [1, 1], "fuse_residual_connection": True, "fuse_activation": "relu6"}
        | {"fuse_alpha": 0.5},
    ),
    Sample(
        "conv3d_epilogue",
        {"Input": numbers(1, 2, 3, 4, 3), "Filter": numbers(2, 2, 2, 3, 2, seed=1)},
        {"fuse_relu": True},
    ),
    Sample(
        "conv2d_transpose_epilogue",
        {"Input": IMAGE, "Filter": numbers(3, 2, 3, 3, seed=1), "Bias": numbers(2)},
        {"strides": [2, 2], "fuse_activation": "swish", "fuse_alpha": 0.5},
    ),
    Sample(
        "conv2d_fusion",
        {"Input": IMAGE, "Filter": FILTER, "ResidualData": numbers(2, 6, 5, 4, seed=3)},
        {"paddings": [1, 1], "activation": "sigmoid", "split_channels": [2, 4]},
    ),
    Sample(
        "fusion_transpose_flatten_concat",
        {"X": [IMAGE, numbers(2, 3, 2, 2)]},
        {"trans_axis": [0, 2, 3, 1]},
    ),
    Sample(
        "fusion_seqpool_concat",
        {"X": [ROWS, numbers(6, 3, seed=1)], "X_lod": [LOD[0], np.array([0, 1, 4, 6])]},
        {"pooltype": "SQRT"},
    ),
    Sample(
        "fusion_seqpool_cvm_concat",
        {
            "X": [numbers(6, 3, low=0.1), numbers(6, 3, low=0.1, seed=1)],
            "X_lod": [LOD[0], np.array([0, 1, 4, 6])],
            "CVM": numbers(3, 2, low=0.1),
        },
    ),
    Sample(
        "fusion_seqconv_eltadd_relu",
        {"X": ROWS, "X_lod": LOD, "Filter": numbers(9, 4), "Bias": numbers(1, 4)},
        {"contextLength": 3, "contextStart": -1},
    ),
    Sample(
        "fused_embedding_seq_pool",
        {"W": TABLE, "Ids": IDS, "Ids_lod": LOD},
        {"padding_idx": 2},
        ("W",),
    ),
    Sample(
        "fused_embedding_seq_pool",
        {"W": TABLE, "Ids": integers(6, 2, high=7, seed=3), "Ids_lod": LOD},
        {},
        ("W",),
    ),
    pooled_gradient(),
    pooled_gradient(is_sparse=True),
    Sample("fusion_lstm", memory(X=ROWS, X_lod=LOD, WeightX=numbers(3, 8))),
    Sample(
        "fused_embedding_fc_lstm",
        memory(Ids=IDS, Ids_lod=LOD, Embeddings=numbers(7, 8)),
        {"is_reverse": True},
    ),
    Sample(
        "fusion_gru",
        {"X": ROWS, "X_lod": LOD, "WeightX": numbers(3, 6), "WeightH": numbers(2, 6, seed=1)},
        {"activation": "relu"},
    ),
    Sample("row_sequences", {"X": X}, {}, ("X",)),
    attention("attention_lstm_steps"),
    attention(
        "attention_lstm",
        H0=numbers(3, 2, seed=5),
        AttentionBias=numbers(1, 1),
        AttentionScalar=numbers(1, 1, low=0.5),
        AttentionScalarBias=numbers(1, 1, seed=1),
    ),
    attention(
        "attention_lstm_steps",
        H0=numbers(3, 2, seed=5),
        AttentionBias=numbers(1, 1),
        AttentionScalar=numbers(1, 1, low=0.5),
        AttentionScalarBias=numbers(1, 1, seed=1),
    ),
]
