"""Attributes that release 1.8.5 requires of gradient ops in a saved program.

There a forward op declares its attributes, and missing ones get their defaults. A gradient op
declares none: it is created with all attributes of its forward op, and its kernel fails if one is
missing. So saved gradient ops include all of them, even those that are unused here: choices of
libraries, flags of fused and quantized ops.

Recorded from the ops of 1.8.5 that have a gradient there and here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_CONV = "conv2d depthwise_conv2d"
_CONVS = f"{_CONV} conv2d_transpose conv3d conv3d_transpose depthwise_conv2d_transpose"
_FUSED = f"{_CONV} conv2d_transpose conv3d depthwise_conv2d_transpose"
_ELEMENTWISE = " ".join(f"elementwise_{name}" for name in "add div max min mul pow sub".split())
_MATHS = (
    "abs ceil cos exp floor gelu log log1p logsigmoid pool2d pool3d reciprocal relu round rsqrt "
    "sigmoid sin softmax softplus softsign sqrt square tanh tanh_shrink"
)

_REQUIRED: tuple[tuple[str, Any, str], ...] = (
    ("use_cudnn", True, "affine_grid grid_sampler"),
    ("use_cudnn", False, f"{_MATHS} {_CONVS} sequence_softmax"),
    (
        "use_mkldnn", False,
        f"{_MATHS} {_CONVS} {_ELEMENTWISE} addmm batch_norm concat data_norm inplace_abn "
        "leaky_relu lrn matmul mul partial_sum swish transpose transpose2",
    ),
    ("use_quantizer", False, f"{_CONV} concat matmul pool2d reshape2 transpose transpose2"),
    ("x_data_format", "", _ELEMENTWISE),
    ("y_data_format", "", _ELEMENTWISE),
    ("workspace_size_MB", 512, _CONVS),
    ("exhaustive_search", False, f"{_CONV} conv3d"),
    ("force_fp32_output", False, f"{_CONV} conv3d matmul mul"),
    ("fuse_with_relu", False, "batch_norm inplace_abn"),
    ("fuse_relu", False, _FUSED),
    ("fuse_activation", "", _FUSED),
    ("fuse_alpha", 0.0, _FUSED),
    ("fuse_beta", 0.0, _FUSED),
    ("fuse_residual_connection", False, f"{_CONV} conv3d"),
    ("fuse_relu_before_depthwise_conv", False, _CONV),
    ("fuse_brelu", False, _CONV),
    ("fuse_brelu_threshold", 6.0, _CONV),
    ("Scale_in", 1.0, _CONV),
    ("Scale_in_eltwise", 1.0, _CONV),
    ("Scale_weights", [1.0], _CONV),
    ("Scale_out", 1.0, f"{_CONV} matmul"),
    ("Scale_x", 1.0, "matmul"),
    ("Scale_y", 1.0, "matmul"),
    ("scale_x", 1.0, "mul"),
    ("scale_y", [1.0], "mul"),
    ("scale_out", 1.0, "mul"),
)  # fmt: skip
"""Attributes by name, with their defaults and the forward ops that have them."""


def _by_op() -> Iterator[tuple[str, dict[str, Any]]]:
    for op in sorted({op for _, _, ops in _REQUIRED for op in ops.split()}):
        yield op, {name: value for name, value, ops in _REQUIRED if op in ops.split()}


_BY_OP = dict(_by_op())


def required_attributes(op: str) -> Mapping[str, Any]:
    """Return the attributes, with defaults, that 1.8.5 requires of an op; none for forward ops.

    >>> required_attributes("relu_grad"), required_attributes("relu")
    ({'use_cudnn': False, 'use_mkldnn': False}, {})
    """
    forward, gradient, _ = op.partition("_grad")
    return _BY_OP.get(forward, {}) if gradient else {}
