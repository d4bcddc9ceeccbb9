"""`data_norm`: normalisation of features by sums that are kept over all data seen."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.norm.group_norm import require_channels

NOT_SHOWN = 1e-7
"""A slot whose first feature is nearer to 0 than this was shown to nobody."""


def shown_features(X: Array, slot_dim: int) -> Array:
    """1 for each feature [N, C] that counts: all, or those of slots that were shown."""
    if slot_dim <= 0:
        return np.ones(X.shape, X.dtype)
    first = np.abs(X[:, ::slot_dim]) >= NOT_SHOWN
    return np.repeat(first, slot_dim, axis=1)[:, : X.shape[1]].astype(X.dtype)


class DataNorm(OpDef, op="data_norm"):
    """Y = (X - mean) * scale, mean = BatchSum / BatchSize, scale = √(BatchSize / BatchSquareSum).

    X is [N, C], all else [C]. With `enable_scale_and_shift`, Y = … * scale_w + bias. With slots of
    `slot_dim` features, those whose first feature is 0 give 0. What backward gives for the three
    sums is what the batch adds to them: its size, its sum, and its squares around the mean, as
    means over the rows where there are slots. Reference: data_norm_op.cc.
    """

    X = reads()
    BatchSize = reads()
    BatchSum = reads()
    BatchSquareSum = reads()
    scale_w = reads(optional=True)
    bias = reads(optional=True)
    Y = writes()
    Means = writes()
    Scales = writes()
    epsilon = attr(1e-4)
    slot_dim = attr(-1)
    summary_decay_rate = attr(0.9999999)
    enable_scale_and_shift = attr(False)
    data_layout = attr("NCHW")
    sync_stats = attr(False)

    def infer(
        self,
        X: TensorType,
        BatchSize: TensorType,
        BatchSum: TensorType,
        BatchSquareSum: TensorType,
        scale_w: TensorType | None,
        bias: TensorType | None,
    ) -> dict[str, TensorType]:
        if X.rank != 2:
            raise ShapeError(f"data_norm: X is {X}, expected features [N, C]")
        sums = {"BatchSize": BatchSize, "BatchSum": BatchSum, "BatchSquareSum": BatchSquareSum}
        require_channels(self.kind, X, "NCHW", **sums, scale_w=scale_w, bias=bias)
        return {"Y": X, "Means": BatchSize, "Scales": BatchSize}

    def infer_grad(self, X: TensorType, Means: TensorType) -> dict[str, TensorType]:
        names = ("BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias")
        return {"X": X, **dict.fromkeys(names, Means)}

    def numpy(
        self,
        X: Array,
        BatchSize: Array,
        BatchSum: Array,
        BatchSquareSum: Array,
        scale_w: Array | None,
        bias: Array | None,
    ) -> dict[str, Array]:
        means, scales = BatchSum / BatchSize, np.sqrt(BatchSize / BatchSquareSum)
        y = (X - means) * scales
        if self.enable_scale_and_shift and scale_w is not None and bias is not None:
            y = y * scale_w + bias
        return {"Y": y * shown_features(X, self.slot_dim), "Means": means, "Scales": scales}

    def grad(
        self,
        X: Array,
        Means: Array,
        Scales: Array,
        scale_w: Array | None,
        bias: Array | None,
        d_Y: Array,
    ) -> dict[str, Array]:
        shown, centred = shown_features(X, self.slot_dim), X - Means
        d_x = d_Y * Scales
        if self.enable_scale_and_shift and scale_w is not None:
            d_x = d_x * scale_w * shown
        count = shown.sum(axis=0)
        squares = (centred * centred * shown).sum(axis=0)
        sums = {"BatchSize": count, "BatchSum": (X * shown).sum(axis=0)}
        over = np.maximum(count, 1) if self.slot_dim > 0 else 1
        made = {slot: value / over for slot, value in sums.items()}
        made["BatchSquareSum"] = squares / over + count * self.epsilon
        learnt = {"scale_w": (d_Y * centred * Scales * shown).sum(axis=0)}
        return {"X": d_x, **made, **learnt, "bias": (d_Y * shown).sum(axis=0)}
