"""The arithmetic of folding a batch norm into the layer before it, for graphs and for programs.

With running statistics a batch norm is y = h * factor + shift, channel by channel. Where each
channel of a layer's output is linear in weights that no other channel has, scaling those weights
scales the channel: layer(x, w) * factor + shift = layer(x, w scaled) + shift (seed 002).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.ir.types import Array

NORMS = frozenset({"batch_norm", "sync_batch_norm"})
"""Ops that are `h * factor + shift` once their statistics stand still."""

VECTORS = ("Scale", "Bias", "Mean", "Variance")
"""What a norm reads besides its input: one number for each channel."""

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
"""Products of matrices, and the attribute by which they turn their weights."""
_LAST = frozenset({"NHWC", "NDHWC"})


def is_frozen(norm: Mapping[str, Any]) -> bool:
    """True for the attributes of a norm that uses the statistics it keeps, not the batch's."""
    testing = norm.get("is_test", False) and not norm.get("trainable_statistics", False)
    return bool(testing or norm.get("use_global_stats", False))


def norm_axis(norm: Mapping[str, Any], rank: int) -> int:
    """The axis of the channels that a norm with these attributes sees in `rank` axes."""
    return rank - 1 if norm.get("data_layout", "NCHW") in _LAST else 1


@dataclass(frozen=True)
class Layer:
    """What a fold asks of a layer: its kind, its attributes, the shape of its weights."""

    kind: str
    attrs: Mapping[str, Any]
    weight: tuple[int, ...]

    def refusal(self) -> str:
        """Why the weights of such a layer cannot be scaled channel by channel; "" if they can."""
        if self.kind not in WEIGHTS:
            return f"it is no {', '.join(WEIGHTS)}"
        if self.kind == "mul" and len(self.weight) - self.attrs.get("y_num_col_dims", 1) != 1:
            return f"its weights {list(self.weight)} have columns along several axes"
        if self.kind != "mul" and self.kind in _PRODUCTS and len(self.weight) < 2:
            return f"its weights {list(self.weight)} are no matrix"
        fused = ("fused_reshape_Out", "fused_transpose_Out")
        if self.attrs.get("head_number", 1) != 1 or any(map(self.attrs.get, fused)):
            return "it rearranges its output"
        return ""

    def channel_axis(self, rank: int) -> int:
        """The axis of its output, which has `rank` axes, that its weights scale along."""
        last = self.kind in _PRODUCTS or self.attrs.get("data_format", "NCHW") in _LAST
        return rank - 1 if last else 1

    def scaled(self, weight: Array, factor: Array) -> Array:
        """Its weights with each channel of the output scaled by one of `factor`, in float64."""
        wide = weight.astype(np.float64)
        if self.kind in _PRODUCTS:
            turned = self.attrs.get(_PRODUCTS[self.kind], False)
            return wide * (factor[:, None] if turned else factor)
        after = (1,) * (weight.ndim - 2)
        if not self.kind.endswith("_transpose"):
            return wide * factor.reshape(-1, 1, *after)
        groups, each = int(self.attrs.get("groups", 1)), weight.shape[1]
        apart = wide.reshape(groups, -1, *weight.shape[1:])
        return (apart * factor.reshape(groups, 1, each, *after)).reshape(weight.shape)


def factor_and_shift(
    scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> tuple[Array, Array]:
    """`(h - mean) / sqrt(variance + epsilon) * scale + bias` as `h * factor + shift`, in float64.

    >>> one = np.ones(1)
    >>> [each.tolist() for each in factor_and_shift(2 * one, one, 3 * one, 4 * one, 0.0)]
    [[1.0], [-2.0]]
    """
    scale, bias, mean, variance = (x.astype(np.float64) for x in (scale, bias, mean, variance))
    factor = scale / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor
