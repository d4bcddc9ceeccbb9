"""`data_norm`: normalisation of features by sums accumulated over all training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.norm.channel_kernels import Channels
from compiler.ops.norm.group_norm import require_channels

NOT_SHOWN = 1e-7
"""A slot whose first feature has a magnitude below this was not shown."""


def shown_features(X: Array, slot_dim: int) -> Array:
    """Return 1 for each feature [N, C] that counts: all, or those of shown slots."""
    if slot_dim <= 0:
        return np.ones(X.shape, X.dtype)
    first = np.abs(X[:, ::slot_dim]) >= NOT_SHOWN
    return np.repeat(first, slot_dim, axis=1)[:, : X.shape[1]].astype(X.dtype)


class DataNorm(OpDef, op="data_norm"):
    """Y = (X - mean) * scale, mean = BatchSum / BatchSize, scale = √(BatchSize / BatchSquareSum).

    X is [N, C], all others [C]. With `enable_scale_and_shift`, Y = … * scale_w + bias. With slots
    of `slot_dim` features, Y is 0 for those whose first feature is 0. The gradients of the three
    sums are the increments by the batch: its size, its sum, and its squares around the mean,
    averaged over the rows if there are slots. Reference: data_norm_op.cc.
    """

    unread_by_kernels = ("bias",)

    grad_like: ClassVar[Mapping[str, str]] = {
        "BatchSize": "Means",
        "BatchSum": "Means",
        "BatchSquareSum": "Means",
    }

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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, BatchSize = s.X, s.BatchSize
        if isinstance(X.shape[-1], int) and self.slot_dim > X.shape[-1]:
            raise BadAttribute(
                f"data_norm: 'slot_dim' is {self.slot_dim}, expected at most the columns of X {X}"
            )
        if X.rank != 2:
            raise ShapeError(f"data_norm: X is {X}, expected features [N, C]")
        sums = {"BatchSize": BatchSize, "BatchSum": s.BatchSum, "BatchSquareSum": s.BatchSquareSum}
        require_channels(self.kind, X, "NCHW", **sums, scale_w=s.get("scale_w"), bias=s.get("bias"))
        return {"Y": X, "Means": BatchSize, "Scales": BatchSize}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        names = ("BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias")
        return {"X": s.X, **dict.fromkeys(names, s.Means)}

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
        result = {slot: value / over for slot, value in sums.items()}
        result["BatchSquareSum"] = squares / over + count * self.epsilon
        learnt = {"scale_w": (d_Y * centred * Scales * shown).sum(axis=0)}
        return {"X": d_x, **result, **learnt, "bias": (d_Y * shown).sum(axis=0)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, BatchSize = s.X, s.BatchSize
        scale_w, bias = s.get("scale_w"), s.get("bias")
        operands = (BatchSize, s.BatchSum, s.BatchSquareSum, scale_w, bias)
        Channels(X.shape).expect(k, *operands)
        (c,) = k.grid(X.shape[1])
        k.store(s.Means, (c,), s.BatchSum[c] / BatchSize[c])
        k.store(s.Scales, (c,), k.sqrt(BatchSize[c] / s.BatchSquareSum[c]))
        n, c = k.grid(*X.shape)
        y = (X[n, c] - s.Means[c]) * s.Scales[c]
        if self.enable_scale_and_shift and scale_w is not None and bias is not None:
            y = y * scale_w[c] + bias[c]
        k.store(s.Y, (n, c), y * self.shown(k, X, n, c, None))

    def shown(
        self, k: KernelBuilder, X: DeviceOperand, n: Number, c: Number, inside: Number | None
    ) -> Number:
        """Return one element of `shown_features`: 1 for a feature that counts."""
        if self.slot_dim <= 0:
            return 1.0
        first = k.div(c, self.slot_dim) * self.slot_dim
        near = k.abs(X.at(n, first, where=inside, other=0)) < NOT_SHOWN
        return k.astype(k.where(near, 0.0, 1.0), X.type.dtype)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        """Emit one pass over the features for X, and one for all sums over the batch."""
        X = s.X
        scale_w = s.get("scale_w")
        if (d_X := s.get("d_X")) is not None:
            n, c = k.grid(*X.shape)
            upstream = s.d_Y[n, c] * s.Scales[c]
            if self.enable_scale_and_shift and scale_w is not None:
                upstream = upstream * scale_w[c] * self.shown(k, X, n, c, None)
            k.store(d_X, (n, c), upstream)
        (c,) = k.grid(X.shape[1])
        n = k.loop(X.shape[0])
        shown, x = self.shown(k, X, n, c, None), X[n, c]
        centred, upstream = x - s.Means[c], s.d_Y[n, c] * shown
        count = k.sum(shown, n)
        over = k.maximum(count, 1) if self.slot_dim > 0 else 1.0
        outputs = (
            (s.get("d_BatchSize"), count / over),
            (s.get("d_BatchSum"), k.sum(x * shown, n) / over),
            (
                s.get("d_BatchSquareSum"),
                k.sum(centred * centred * shown, n) / over + count * self.epsilon,
            ),
            (s.get("d_scale_w"), k.sum(upstream * centred * s.Scales[c], n)),
            (s.get("d_bias"), k.sum(upstream, n)),
        )
        for out, value in outputs:
            if out is not None:
                k.store(out, (c,), value)
