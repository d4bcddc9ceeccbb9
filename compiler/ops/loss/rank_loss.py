"""Ranking losses: of two scores, or of one class against all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, Value, Xp, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss.binary_losses import SameTypePointwise, sigmoid, softplus
from compiler.ops.loss.cross_entropy_kernels import row_table
from compiler.ops.loss.nce import row_labels
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import require_dtype, require_same_shape


class RankLoss(SameTypePointwise, op="rank_loss"):
    """Out = log(1 + exp(o)) - Label * o with o = Left - Right: Label 1 means Left ranks higher.

    Each input is [N] or [N, 1], and Out has the shape of Label. Reference: rank_loss_op.h.
    """

    lod_source = ""

    Label = reads(no_grad=True)
    Left = reads()
    Right = reads()
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of Label; raise ShapeError if another input's size differs."""
        selected = {slot: types[slot] for slot in ("Label", "Left", "Right")}
        viewed = {
            slot: selected[slot].with_shape(shape) for slot, shape in self.align(selected).items()
        }
        return super().infer_types({**types, **viewed})

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Return view shapes whose trailing axes of size 1 match Label's rank."""
        label = types["Label"].shape
        return {
            slot: (type.shape[0], *label[1:])
            for slot, type in types.items()
            if type.rank != len(label) and not any(map(_is_more, (*label[1:], *type.shape[1:])))
        }

    def compute(self, xp: Xp, Label: Value, Left: Value, Right: Value) -> Value:
        lead = Left - Right
        return softplus(xp, lead) - Label * lead

    def grad(self, xp: Xp, Label: Value, Left: Value, Right: Value, d_Out: Value) -> Value:
        slope = d_Out * (sigmoid(xp, Left - Right) - Label)
        return {"Left": slope, "Right": -slope}


def _is_more(size: Size) -> bool:
    """Return whether a size is known and not 1."""
    return isinstance(size, int) and size != 1


class MarginRankLoss(SameTypePointwise, op="margin_rank_loss"):
    """Out = max(0, margin - Label * (X1 - X2)): Label 1 means X1 ranks higher, -1 that X2 does.

    Activated is 1 where Out > 0, else 0. Reference: margin_rank_loss_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X1": "Label", "X2": "Label"}

    X1 = reads()
    X2 = reads()
    Label = reads(no_grad=True)
    Activated = writes()
    Out = writes()
    margin = attr(0.0)

    def compute(self, xp: Xp, X1: Value, X2: Value, Label: Value) -> dict[str, Value]:
        loss = self.margin - Label * (X1 - X2)
        return {"Activated": xp.where(loss > 0.0, 1.0, 0.0), "Out": xp.maximum(loss, 0.0)}

    def grad(self, xp: Xp, Label: Value, Activated: Value, d_Out: Value) -> Value:
        slope = d_Out * Label * Activated
        return {"X1": -slope, "X2": slope}


def score_margins(X: Array, labels: Array) -> Array:
    """Return the score of each class minus that of its row's label."""
    return X - np.take_along_axis(X, labels, axis=-1)


def true_labels(Label: Array, classes: int) -> Array:
    """Return the labels [..., 1]; raise ValueError for one that is not a class."""
    return row_labels(Label.reshape(-1, 1), classes).reshape(Label.shape)


class BprLoss(OpDef, op="bpr_loss"):
    """Y = the mean over all other classes j of log(1 + exp(X[j] - X[Label])): [..., C] → [..., 1].

    Reference: bpr_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_dtype(self.kind, "Label", s.Label, DType.INT64)
        if X.rank < 1 or X.shape[-1] == 1:
            raise ShapeError(f"{self.kind}: X is {X}, expected at least two classes")
        loss = X.with_shape((*X.shape[:-1], 1))
        require_same_shape(self.kind, Y=loss, Label=s.Label)
        return loss

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array, Label: Array) -> Array:
        labels = true_labels(Label, X.shape[-1])
        loss = np.logaddexp(0, score_margins(X, labels))
        np.put_along_axis(loss, labels, 0, axis=-1)
        return loss.sum(-1, keepdims=True) / X.dtype.type(X.shape[-1] - 1)

    def grad(self, X: Array, Label: Array, d_Y: Array) -> dict[str, Array]:
        labels = true_labels(Label, X.shape[-1])
        slope = 0.5 + 0.5 * np.tanh(0.5 * score_margins(X, labels))
        np.put_along_axis(slope, labels, 0, axis=-1)
        np.put_along_axis(slope, labels, -slope.sum(-1, keepdims=True), axis=-1)
        return {"X": slope * d_Y / X.dtype.type(X.shape[-1] - 1)}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Label = s.X, s.Label
        k.line(f"{k.function(true_labels)}({Label}, {X.shape[-1]})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        rows, classes = row_table(X.shape)
        (i,) = k.grid(rows)
        r = k.loop(classes)
        lead, _, other = margin_at(k, X, s.Label, i, r)
        total = k.sum(k.where(other, softplus(k, lead), 0), r)
        k.store(s.Y.reshaped((rows,)), (i,), total / other_classes(k, X))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        rows, classes = row_table(X.shape)
        (i,) = k.grid(rows)
        r = k.loop(classes)
        lead, is_valid, other = margin_at(k, X, s.Label, i, r)
        slope = k.where(other & is_valid, sigmoid(k, lead), 0)
        slope = k.where(other, slope, -k.sum(slope, r))
        share = s.d_Y.reshaped((rows,))[i] / other_classes(k, X)
        k.store(s.d_X.reshaped((rows, classes)), (i, r), slope * share)


def margin_at(
    k: KernelBuilder, X: DeviceOperand, Label: DeviceOperand, i: Number, c: Number
) -> tuple[Number, Number, Number]:
    """Return a class's score minus the label's, if the label is valid, and if they differ."""
    rows, classes = row_table(X.shape)
    label = Label.reshaped((rows,))[i]
    is_valid, table = inside(k, label, classes), X.reshaped((rows, classes))
    lead = table[i, c] - table.at(i, label, where=is_valid, other=float("nan"))
    return lead, is_valid, k.not_equal(label, c)


def other_classes(k: KernelBuilder, X: DeviceOperand) -> Number:
    """Return the number of classes other than the label."""
    return k.astype(k.size(X.shape[-1]) - 1, X.type.dtype)
