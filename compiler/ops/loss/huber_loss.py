"""The Huber loss: squared near 0, absolute beyond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compiler.ir.opdef import Value, Xp, reads, required, writes
from compiler.ops.loss.binary_losses import SameTypePointwise


class HuberLoss(SameTypePointwise, op="huber_loss"):
    """Out = r² / 2 if |r| <= delta, else delta * (|r| - delta / 2), with Residual r = Y - X.

    Reference: huber_loss_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Residual", "Y": "Residual"}

    X = reads()
    Y = reads()
    Residual = writes(shares_lod=False)
    Out = writes()
    delta = required(float)

    def compute(self, xp: Xp, X: Value, Y: Value) -> dict[str, Value]:
        residual = Y - X
        size = xp.abs(residual)
        far = self.delta * (size - 0.5 * self.delta)
        near = 0.5 * residual * residual
        return {"Residual": residual, "Out": xp.where(size <= self.delta, near, far)}

    def grad(self, xp: Xp, Residual: Value, d_Out: Value) -> Value:
        pull = d_Out * xp.minimum(xp.maximum(Residual, -self.delta), self.delta)
        return {"X": -pull, "Y": pull}
