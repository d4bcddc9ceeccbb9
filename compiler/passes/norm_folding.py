"""Arithmetic of folding a batch norm into the previous layer, for graphs and for programs.

With running statistics a batch norm is y = h * factor + shift, channel by channel. If each channel
of a layer's output is linear in its own weights, scaling those weights scales the channel: layer(x,
w) * factor + shift = layer(x, w scaled) + shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

NORMS = frozenset({"batch_norm", "sync_batch_norm"})
"""Ops that are `h * factor + shift` if their statistics are fixed."""

VECTORS = ("Scale", "Bias", "Mean", "Variance")
"""Per-channel inputs of a norm."""

WEIGHTS: Mapping[str, str] = {
    "conv2d": "Filter",
    "depthwise_conv2d": "Filter",
    "conv3d": "Filter",
    "conv2d_transpose": "Filter",
    "depthwise_conv2d_transpose": "Filter",
    "conv3d_transpose": "Filter",
    "mul": "Y",
    "matmul": "Y",
    "matmul_v2": "Y",
}
"""Layers whose output channels scale with their weights, and the slot of the weights."""

_PRODUCTS: Mapping[str, str] = {"mul": "", "matmul": "transpose_Y", "matmul_v2": "trans_y"}
"""Matrix products, and the attribute that transposes their weights."""
_LAST = frozenset({"NHWC", "NDHWC"})


def is_frozen(norm: Mapping[str, Any]) -> bool:
    """Whether a norm with these attributes uses running statistics, not those of the batch."""
    testing = norm.get("is_test", False) and not norm.get("trainable_statistics", False)
    return bool(testing or norm.get("use_global_stats", False))


def norm_axis(norm: Mapping[str, Any], rank: int) -> int:
    """Return the channel axis of a norm with these attributes for inputs of `rank` axes."""
    return rank - 1 if norm.get("data_layout", "NCHW") in _LAST else 1


@dataclass(frozen=True)
class Layer:
    """The kind, attributes and weight shape of a layer to fold into."""

    kind: str
    attrs: Mapping[str, Any]
    weight: tuple[int, ...]

    def refusal(self) -> str:
        """Return why the weights of the layer cannot be scaled per channel; empty if they can."""
        if self.kind not in WEIGHTS:
            return f"it is none of {', '.join(WEIGHTS)}"
        if self.kind == "mul" and len(self.weight) - self.attrs.get("y_num_col_dims", 1) != 1:
            return f"its weights {list(self.weight)} have columns along several axes"
        if self.kind != "mul" and self.kind in _PRODUCTS and len(self.weight) < 2:
            return f"its weights {list(self.weight)} are not a matrix"
        fused = ("fused_reshape_Out", "fused_transpose_Out")
        if self.attrs.get("head_number", 1) != 1 or any(map(self.attrs.get, fused)):
            return "it rearranges its output"
        return ""

    def channel_axis(self, rank: int) -> int:
        """Return the output axis, of `rank`, along which the weights scale."""
        last = self.kind in _PRODUCTS or self.attrs.get("data_format", "NCHW") in _LAST
        return rank - 1 if last else 1

    def scaled(self, weight: Array, factor: Array) -> Array:
        """Return the weights with each output channel scaled by `factor`, in their dtype.

        Products are in float64.
        """
        if self.kind in _PRODUCTS:
            transposed = self.attrs.get(_PRODUCTS[self.kind], False)
            return _rounded_product(weight, factor[:, None] if transposed else factor)
        after = (1,) * (weight.ndim - 2)
        if not self.kind.endswith("_transpose"):
            return _rounded_product(weight, factor.reshape(-1, 1, *after))
        groups, per_group = int(self.attrs.get("groups", 1)), weight.shape[1]
        by_group = weight.reshape(groups, -1, *weight.shape[1:])
        scaled = _rounded_product(by_group, factor.reshape(groups, 1, per_group, *after))
        return scaled.reshape(weight.shape)


def _rounded_product(weight: Array, factor: Array) -> Array:
    """Multiply in float64, a few thousand elements at a time, without a float64 copy."""
    out = np.empty_like(weight, order="C")
    return np.multiply(weight, factor, out=out, dtype=np.float64, casting="unsafe")


def factor_and_shift(
    scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> tuple[Array, Array]:
    """Write `(h - mean) / sqrt(variance + epsilon) * scale + bias` as `h * factor + shift`, in
    float64.

    >>> one = np.ones(1)
    >>> [each.tolist() for each in factor_and_shift(2 * one, one, 3 * one, 4 * one, 0.0)]
    [[1.0], [-2.0]]
    """
    scale, bias, mean, variance = (x.astype(np.float64) for x in (scale, bias, mean, variance))
    factor = scale / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor
