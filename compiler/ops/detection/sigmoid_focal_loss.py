"""The focal loss of sigmoid scores: easy examples count less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
)
from compiler.ir.opdef.size_comparison import shapes_differ
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import (
    require_dtype,
    require_scalar,
    shown,
)


class SigmoidFocalLoss(OpDef, op="sigmoid_focal_loss"):
    """Out = the focal loss of each class: cross entropy, down-weighted for confident predictions.

    X [N, D] are logits of classes 1 to D, Label int32 [N, 1] the class, 0 for background, -1 for
    ignored rows. With p = sigmoid(X), the true class costs alpha (1-p)^gamma (-log p), another
    one (1-alpha) p^gamma (-log(1-p)), over max(FgNum, 1). Reference: sigmoid_focal_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    FgNum = reads(no_grad=True)
    Out = writes()
    gamma = attr(2.0, FINITE)
    alpha = attr(0.25, FINITE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Label = s.X, s.Label
        require_dtype(self.kind, "Label", Label, DType.INT32)
        require_dtype(self.kind, "FgNum", s.FgNum, DType.INT32)
        require_scalar(self.kind, FgNum=s.FgNum)
        if X.rank != 2 or shapes_differ(Label, Label.with_shape((X.shape[0], 1))):
            shapes = shown(X=X, Label=Label)
            raise ShapeError(f"sigmoid_focal_loss: {shapes}, expected a label per row")
        return X

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array, Label: Array, FgNum: Array) -> Array:
        true, wrong = focal_weights(X, Label, FgNum, self.alpha)
        p, log_p, log_rest = focal_parts(X)
        loss = -true * (1 - p) ** self.gamma * log_p - wrong * p**self.gamma * log_rest
        return loss.astype(X.dtype)

    def grad(self, X: Array, Label: Array, FgNum: Array, d_Out: Array) -> dict[str, Array]:
        true, wrong = focal_weights(X, Label, FgNum, self.alpha)
        p, log_p, log_rest = focal_parts(X)
        rising = (1 - p) ** self.gamma * (1 - p - p * self.gamma * log_p)
        falling = p**self.gamma * (log_rest * (1 - p) * self.gamma - p)
        return {"X": (d_Out * (-true * rising - wrong * falling)).astype(X.dtype)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        at = k.grid(*X.shape)
        true, wrong = self.weights(k, s.Label, s.FgNum, at, X.type.dtype)
        p, log_p, log_rest = focal_terms(k, X[at])
        falling = k.power(p, self.gamma) * log_rest * wrong
        k.store(s.Out, at, -(k.power(1.0 - p, self.gamma) * log_p * true) - falling)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        at = k.grid(*X.shape)
        true, wrong = self.weights(k, s.Label, s.FgNum, at, X.type.dtype)
        p, log_p, log_rest = focal_terms(k, X[at])
        rising = k.power(1.0 - p, self.gamma) * (1.0 - p - p * log_p * self.gamma)
        falling = k.power(p, self.gamma) * (log_rest * (1.0 - p) * self.gamma - p)
        k.store(s.d_X, at, -(s.d_Out[at] * (true * rising + wrong * falling)))

    def weights(
        self,
        k: KernelBuilder,
        Label: DeviceOperand,
        FgNum: DeviceOperand,
        at: Sequence[Number],
        dtype: DType,
    ) -> tuple[Number, Number]:
        """Return `focal_weights` of one element."""
        count, label = k.astype(k.maximum(FgNum.reshaped((1,))[0], 1), dtype), Label[at[0], 0]
        true = k.equal(label, at[1] + 1)
        wrong = k.where(true | k.equal(label, -1), 0.0, (1 - self.alpha) / count)
        return k.where(true, self.alpha / count, 0.0), wrong


def focal_terms(k: KernelBuilder, x: Number) -> tuple[Number, Number, Number]:
    """Return `focal_parts` of one element."""
    p = 1.0 / (1.0 + k.exp(-x))
    rest = -k.maximum(x, 0.0) - k.log1p(k.exp(-k.absolute(x)))
    return p, k.log(k.maximum(p, float(np.finfo(np.float32).tiny))), rest


def focal_weights(X: Array, Label: Array, FgNum: Array, alpha: float) -> tuple[Array, Array]:
    """Return the weights of the true class of each row, and of the others: [N, D]."""
    count, labels = max(int(FgNum.reshape(-1)[0]), 1), Label.reshape(-1, 1)
    true: Array = labels == np.arange(1, int(X.shape[1]) + 1)
    return true * (alpha / count), (~true & (labels != -1)) * ((1 - alpha) / count)


def focal_parts(X: Array) -> tuple[Array, Array, Array]:
    """Return p = sigmoid(X), log(p), and log(1 - p), all finite."""
    p = 1 / (1 + np.exp(-X))
    rest = -np.maximum(X, 0) - np.log1p(np.exp(-np.abs(X)))
    return p, np.log(np.maximum(p, np.finfo(np.float32).tiny)), rest
