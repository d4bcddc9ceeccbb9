"""Updates with per-element learning rates, and proximal updates.

All are elementwise; sparse gradients are densified first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import MissingSlot
from compiler.ir.opdef import Value, Xp, attr, reads, writes
from compiler.ops.train.sgd import Update, Updated


class Adadelta(Updated, op="adadelta"):
    """Param moves by -Grad, scaled by the RMS of past moves over that of gradients (Zeiler, 2012).

    squares = rho * AvgSquaredGrad + (1 - rho) * Grad**2;
    AvgSquaredUpdate = rho * AvgSquaredUpdate + (1 - rho) * move**2, where move = -sqrt(
    (AvgSquaredUpdate + epsilon) / (squares + epsilon)) * Grad. Param then moves by that formula
    with the new AvgSquaredUpdate: so does the reference, which writes in place
    (adadelta_op.h). There is no learning rate.
    """

    AvgSquaredGrad = reads()
    AvgSquaredUpdate = reads()
    AvgSquaredGradOut = writes(inplace="AvgSquaredGrad")
    AvgSquaredUpdateOut = writes(inplace="AvgSquaredUpdate")
    rho = attr(0.95)
    epsilon = attr(1e-6)

    def compute(
        self, xp: Xp, Param: Value, Grad: Value, AvgSquaredGrad: Value, AvgSquaredUpdate: Value
    ) -> Value:
        squares = AvgSquaredGrad * self.rho + Grad * Grad * (1.0 - self.rho)
        move = xp.sqrt((AvgSquaredUpdate + self.epsilon) / (squares + self.epsilon)) * Grad
        moved = AvgSquaredUpdate * self.rho + move * move * (1.0 - self.rho)
        ratio = (moved + self.epsilon) / (squares + self.epsilon)
        return {
            "ParamOut": Param - xp.sqrt(ratio) * Grad,
            "AvgSquaredGradOut": squares,
            "AvgSquaredUpdateOut": moved,
        }


class DecayedAdagrad(Update, op="decayed_adagrad"):
    """Moment = decay * Moment + (1 - decay) * Grad**2;

    Param -= LearningRate * Grad / (sqrt(Moment) + epsilon). Reference: decayed_adagrad_op.h.
    """

    Moment = reads()
    MomentOut = writes(inplace="Moment")
    decay = attr(0.95)
    epsilon = attr(1e-6)

    def compute(
        self, xp: Xp, Param: Value, Grad: Value, Moment: Value, LearningRate: Value
    ) -> Value:
        moment = Moment * self.decay + Grad * Grad * (1.0 - self.decay)
        step = LearningRate * Grad / (xp.sqrt(moment) + self.epsilon)
        return {"ParamOut": Param - step, "MomentOut": moment}


class Rmsprop(Update, op="rmsprop"):
    """Gradients over the root of their mean square, with momentum (Tieleman & Hinton, 2012).

    MeanSquare = decay * MeanSquare + (1 - decay) * Grad**2; if `centered`, the square of
    MeanGrad (the moving mean of Grad, else unchanged) is subtracted from it;
    Moment = momentum * Moment + LearningRate * Grad / sqrt(MeanSquare + epsilon); Param -= Moment.
    Reference: rmsprop_op.h.
    """

    MeanSquare = reads()
    MeanGrad = reads(optional=True)
    Moment = reads()
    MomentOut = writes(inplace="Moment")
    MeanSquareOut = writes(inplace="MeanSquare")
    MeanGradOut = writes(inplace="MeanGrad", optional=True)
    epsilon = attr(1e-10)
    decay = attr(0.9)
    momentum = attr(0.0)
    centered = attr(False)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the overwritten values; MissingSlot if `centered` lacks MeanGrad."""
        if self.centered and types.get("MeanGrad") is None:
            raise MissingSlot("Input MeanGrad not found: rmsprop needs it where it is centered")
        return super().infer_types(types)

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        LearningRate: Value,
        MeanSquare: Value,
        MeanGrad: Value,
        Moment: Value,
    ) -> Value:
        square = MeanSquare * self.decay + Grad * Grad * (1.0 - self.decay)
        mean, spread = MeanGrad, square
        if self.centered:
            mean = MeanGrad * self.decay + Grad * (1.0 - self.decay)
            spread = square - mean * mean
        step = Moment * self.momentum + LearningRate * Grad / xp.sqrt(spread + self.epsilon)
        changed = {"ParamOut": Param - step, "MomentOut": step, "MeanSquareOut": square}
        return changed if mean is None else changed | {"MeanGradOut": mean}


def accumulated(xp: Xp, squares: Value, power: float) -> Value:
    """Squares to the power `-power`."""
    return xp.sqrt(squares) if power == -0.5 else xp.power(squares, -power)


class Ftrl(Update, op="ftrl"):
    """Follow the regularized leader (McMahan et al., 2013): Param is 0 if abs(Linear) <= `l1`.

    With squares = SquaredAccumulator + Grad**2 and root(x) = x ** -lr_power,
    Linear += Grad - (root(squares) - root(SquaredAccumulator)) / LearningRate * Param;
    Param = (l1 * sign(Linear) - Linear) / (root(squares) / LearningRate + 2 * l2) where
    |Linear| > l1. 1e-10 is added to `l1` and `l2`, as in the reference (ftrl_op.h).
    """

    SquaredAccumulator = reads()
    LinearAccumulator = reads()
    SquaredAccumOut = writes(inplace="SquaredAccumulator")
    LinearAccumOut = writes(inplace="LinearAccumulator")
    l1 = attr(0.0)
    l2 = attr(0.0)
    lr_power = attr(-0.5)

    def compute(
        self,
        xp: Xp,
        Param: Value,
        SquaredAccumulator: Value,
        LinearAccumulator: Value,
        Grad: Value,
        LearningRate: Value,
    ) -> Value:
        l1, l2 = self.l1 + 1e-10, self.l2 + 1e-10
        squares = SquaredAccumulator + Grad * Grad
        root = accumulated(xp, squares, self.lr_power)
        grown = (root - accumulated(xp, SquaredAccumulator, self.lr_power)) / LearningRate
        linear = LinearAccumulator + Grad - grown * Param
        shrunk = (xp.sign(linear) * l1 - linear) / (root / LearningRate + 2.0 * l2)
        return {
            "ParamOut": xp.where(xp.abs(linear) > l1, shrunk, 0.0),
            "SquaredAccumOut": squares,
            "LinearAccumOut": linear,
        }


def drawn(xp: Xp, moved: Value, rate: Value, l1: float, l2: float) -> Value:
    """The proximal operator: the parameter after its step, shrunk towards 0."""
    scale = 1.0 + rate * l2
    if l1 <= 0.0:
        return moved / scale
    return xp.sign(moved) * xp.maximum(xp.abs(moved) - rate * l1, 0.0) / scale


class Proximal(Update):
    """A gradient step, then shrinkage by rate * `l1` and by the factor 1 / (1 + rate * `l2`)."""

    l1 = attr(0.0)
    l2 = attr(0.0)


class ProximalGd(Proximal, op="proximal_gd"):
    """Proximal gradient descent (Duchi & Singer, 2009). Reference: proximal_gd_op.h."""

    def compute(self, xp: Xp, Param: Value, Grad: Value, LearningRate: Value) -> Value:
        return drawn(xp, Param - LearningRate * Grad, LearningRate, self.l1, self.l2)


class ProximalAdagrad(Proximal, op="proximal_adagrad"):
    """Moment += Grad**2, the step is LearningRate * Grad / sqrt(Moment); then the proximal step.

    Reference: proximal_adagrad_op.h.
    """

    Moment = reads()
    MomentOut = writes(inplace="Moment")

    def compute(
        self, xp: Xp, Param: Value, Moment: Value, Grad: Value, LearningRate: Value
    ) -> Value:
        moment = Moment + Grad * Grad
        moved = Param - LearningRate * Grad / xp.sqrt(moment)
        return {"ParamOut": drawn(xp, moved, LearningRate, self.l1, self.l2), "MomentOut": moment}
