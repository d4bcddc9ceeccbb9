"""Attributes of release 1.8.5 that select kernels of other libraries, and their defaults.

Ops here compute the same with any value, so programs do not store them unless a script sets them.
Scripts see them in `Operator.attr_names`, `has_attr` and `attr`, and in `OpProto.attrs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

__all__ = ["library_attributes"]

_CONVOLUTIONS = "conv2d depthwise_conv2d"
_CUDNN = (
    f"{_CONVOLUTIONS} abs ceil conv2d_transpose conv3d conv3d_transpose cos "
    "depthwise_conv2d_transpose exp floor gelu log log1p logsigmoid reciprocal relu round rsqrt "
    "sequence_softmax sigmoid sin softmax softplus softsign sqrt square tanh tanh_shrink"
)
_ELEMENTWISE = (
    "elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min "
    "elementwise_mod elementwise_mul elementwise_pow elementwise_sub"
)
_POOLS = "pool2d pool3d"
_TRANSPOSES = "prior_box transpose transpose2"
_FUSED = f"{_CONVOLUTIONS} conv2d_transpose conv3d depthwise_conv2d_transpose"
_TABLE: tuple[tuple[str, object, str], ...] = (
    ("use_mkldnn", False, f"{_CUDNN} {_ELEMENTWISE} {_POOLS} {_TRANSPOSES}"),
    (
        "use_mkldnn", False,
        "addmm batch_norm concat data_norm fc gaussian_random inplace_abn leaky_relu lrn matmul "
        "mul partial_sum sum swish",
    ),
    ("use_cudnn", False, f"{_CUDNN} {_POOLS}"),
    ("use_cudnn", True, "affine_grid grid_sampler"),
    ("use_quantizer", False, f"{_CONVOLUTIONS} {_TRANSPOSES} concat fc matmul pool2d reshape2"),
    ("x_data_format", "", _ELEMENTWISE),
    ("y_data_format", "", _ELEMENTWISE),
    ("workspace_size_MB", 512, f"{_FUSED} conv3d_transpose"),
    ("force_fp32_output", False, f"{_CONVOLUTIONS} conv3d fc matmul mul"),
    ("fuse_relu", False, _FUSED),
    ("fuse_activation", "", _FUSED),
    ("fuse_alpha", 0.0, _FUSED),
    ("fuse_beta", 0.0, _FUSED),
    ("fuse_residual_connection", False, f"{_CONVOLUTIONS} conv3d"),
    ("exhaustive_search", False, f"{_CONVOLUTIONS} conv3d"),
    ("fuse_relu_before_depthwise_conv", False, _CONVOLUTIONS),
    ("fuse_brelu", False, _CONVOLUTIONS),
    ("fuse_brelu_threshold", 6.0, _CONVOLUTIONS),
    ("fuse_with_relu", False, "batch_norm inplace_abn"),
    ("Scale_in", 1.0, f"{_CONVOLUTIONS} fc"),
    ("Scale_weights", [1.0], f"{_CONVOLUTIONS} fc"),
    ("Scale_out", 1.0, f"{_CONVOLUTIONS} fc matmul"),
    ("Scale_in_eltwise", 1.0, _CONVOLUTIONS),
    ("Scale_x", 1.0, "matmul"),
    ("Scale_y", 1.0, "matmul"),
    ("scale_x", 1.0, "mul"),
    ("scale_y", [1.0], "mul"),
    ("scale_out", 1.0, "mul"),
    (
        "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@", True,
        "cos_sim fc fused_embedding_seq_pool hash sequence_enumerate",
    ),
)  # fmt: skip


@cache
def library_attributes(kind: str) -> Mapping[str, object]:
    """The default of each such attribute of an op type; empty for most.

    >>> dict(library_attributes("sum")), "scale_x" in library_attributes("mul")
    ({'use_mkldnn': False}, True)
    """
    return {name: default for name, default, kinds in _TABLE if kind in kinds.split()}
