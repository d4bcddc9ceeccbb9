"""Pointwise losses of a score against a label of 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from compiler.ir.opdef import Pointwise, Rowwise, Value, Xp, attr, reads, required, writes
from compiler.ops.type_checks import require_same_dtype, require_same_shape


class SameTypePointwise(Pointwise):
    """A pointwise op whose inputs and outputs have one shape and one dtype."""

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of any input; raise ShapeError if they differ."""
        present = {slot: types[slot] for slot in self.inputs() if types.get(slot) is not None}
        require_same_shape(self.kind, **present)
        require_same_dtype(self.kind, **present)
        return super().infer_types(types)


def softplus(xp: Xp, x: Value) -> Value:
    """Return log(1 + exp(x)) without overflow.

    >>> import numpy as np
    >>> softplus(np, np.array([-800.0, 0.0, 800.0])).round(3).tolist()
    [0.0, 0.693, 800.0]
    """
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


def sigmoid(xp: Xp, x: Value) -> Value:
    """Return 1 / (1 + exp(-x)) without overflow."""
    below = xp.exp(-xp.abs(x))
    return xp.where(x < 0.0, below, 1.0) / (1.0 + below)


class HingeLoss(SameTypePointwise, op="hinge_loss"):
    """Loss = max(0, 1 - Logits * (2 * Labels - 1)). Reference: hinge_loss_op.h."""

    Logits = reads()
    Labels = reads(no_grad=True)
    Loss = writes()

    def compute(self, xp: Xp, Logits: Value, Labels: Value) -> Value:
        return xp.maximum(1.0 - Logits * (2.0 * Labels - 1.0), 0.0)

    def grad(self, xp: Xp, Logits: Value, Labels: Value, d_Loss: Value) -> Value:
        sign = 2.0 * Labels - 1.0
        return {"Logits": -(d_Loss * sign) * (Logits * sign < 1.0)}


class LogLoss(SameTypePointwise, op="log_loss"):
    """Loss = -Labels * log(Predicted + epsilon) - (1 - Labels) * log(1 - Predicted + epsilon).

    Reference: log_loss_op.h.
    """

    Predicted = reads()
    Labels = reads(no_grad=True)
    Loss = writes()
    epsilon = required(float)

    def compute(self, xp: Xp, Predicted: Value, Labels: Value) -> Value:
        for_one = Labels * xp.log(Predicted + self.epsilon)
        return -for_one - (1.0 - Labels) * xp.log(1.0 - Predicted + self.epsilon)

    def grad(self, xp: Xp, Predicted: Value, Labels: Value, d_Loss: Value) -> Value:
        for_one = Labels / (Predicted + self.epsilon)
        return {"Predicted": d_Loss * ((1.0 - Labels) / (1.0 - Predicted + self.epsilon) - for_one)}


class BceLoss(SameTypePointwise, op="bce_loss"):
    """Out = -Label * log(X) - (1 - Label) * log(1 - X), with logarithms clamped at -100.

    Reference: bce_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Out = writes()

    def compute(self, xp: Xp, X: Value, Label: Value) -> Value:
        for_one = Label * xp.maximum(xp.log(X), -100.0)
        return (Label - 1.0) * xp.maximum(xp.log(1.0 - X), -100.0) - for_one

    def grad(self, xp: Xp, X: Value, Label: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (X - Label) / xp.maximum(X * (1.0 - X), 1e-12)}


def squared_hinge(xp: Xp, z: Value) -> Value:
    """Return (1 - z)² for z < 1, else 0."""
    return xp.square(xp.maximum(1.0 - z, 0.0))


class ModifiedHuberLoss(SameTypePointwise, op="modified_huber_loss"):
    """Out = -4 z if z < -1, (1 - z)² if z < 1, else 0, with IntermediateVal z = X * (2 * Y - 1).

    Reference: modified_huber_loss_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "IntermediateVal"}

    X = reads()
    Y = reads(no_grad=True)
    IntermediateVal = writes()
    Out = writes()

    def compute(self, xp: Xp, X: Value, Y: Value) -> dict[str, Value]:
        z = X * (2.0 * Y - 1.0)
        return {"IntermediateVal": z, "Out": xp.where(z < -1.0, -4.0 * z, squared_hinge(xp, z))}

    def grad(self, xp: Xp, Y: Value, IntermediateVal: Value, d_Out: Value) -> Value:
        slope = -2.0 * xp.maximum(1.0 - IntermediateVal, 0.0)
        return {"X": d_Out * xp.maximum(slope, -4.0) * (2.0 * Y - 1.0)}


def mask_ignored(xp: Xp, each: Value, Label: Value, ignore_index: int, normalize: bool) -> Value:
    """Zero elements with ignored labels, and divide by the count of the others if `normalize`."""
    masked = each * xp.not_equal(xp.trunc(Label), ignore_index)
    if not normalize:
        return masked
    every = tuple(range(len(Label.shape)))
    others = xp.where(xp.abs(Label - ignore_index) > 1e-6, Label * 0.0 + 1.0, 0.0)
    return masked / xp.maximum(xp.sum(others, axis=every, keepdims=True), 1.0)


class SigmoidCrossEntropyWithLogits(
    SameTypePointwise, Rowwise, op="sigmoid_cross_entropy_with_logits"
):
    """Out = -Label * log(p) - (1 - Label) * log(1 - p) with p = sigmoid(X), computed from X.

    Out is 0 where Label, truncated, is `ignore_index`. With `normalize`, Out is divided by the
    number of labels other than `ignore_index`; if there are none, Out is 0 (not 0 / 0, as on the
    reference's CPU). Reference: sigmoid_cross_entropy_with_logits_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Out = writes()
    normalize = attr(False)
    ignore_index = attr(-100)

    def compute(self, xp: Xp, X: Value, Label: Value) -> Value:
        loss = xp.maximum(X, 0.0) - X * Label + xp.log1p(xp.exp(-xp.abs(X)))
        return mask_ignored(xp, loss, Label, self.ignore_index, self.normalize)

    def grad(self, xp: Xp, X: Value, Label: Value, d_Out: Value) -> Value:
        slope = (sigmoid(xp, X) - Label) * d_Out
        return {"X": mask_ignored(xp, slope, Label, self.ignore_index, self.normalize)}


class TeacherStudentSigmoidLoss(SameTypePointwise, op="teacher_student_sigmoid_loss"):
    """Y = the click loss, plus the loss against the teacher's score if there is one.

    With H(z) = log(1 + exp(X)) - X * z, the loss of target z: Label < -1 means no click and no
    score: H(0); Label < 0 a click and no score: H(1); Label < 1 no click and the score Label: H(0)
    + H(Label); else a click and the score Label - 1: H(1) + H(Label - 1). The gradient is 0 unless
    X is strictly between the two bounds. Reference: teacher_student_sigmoid_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Y = writes()
    soft_max_up_bound = attr(15.0)
    soft_max_lower_bound = attr(-15.0)

    def compute(self, xp: Xp, X: Value, Label: Value) -> Value:
        base = softplus(xp, X)
        unscored = base - X * (Label >= -1.0)
        return xp.where(Label < 0.0, unscored, 2.0 * base - X * Label)

    def grad(self, xp: Xp, X: Value, Label: Value, d_Y: Value) -> Value:
        low, high = self.soft_max_lower_bound, self.soft_max_up_bound
        guess = sigmoid(xp, X)
        slope = xp.where(Label < 0.0, guess - (Label >= -1.0), 2.0 * guess - Label)
        return {"X": d_Y * slope * xp.logical_and(low < X, high > X)}
