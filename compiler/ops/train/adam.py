"""Optimizer updates with moments for each element. Every output overwrites the state it updates."""

from __future__ import annotations

from compiler.ir.opdef import Value, Xp, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ops.train.sgd import Update


class Adagrad(Update, op="adagrad"):
    """Moment += Grad**2; Param -= LearningRate * Grad / (sqrt(Moment) + epsilon).

    Reference: adagrad_op.h (Duchi et al., 2011).
    """

    Moment = reads()
    MomentOut = writes(inplace="Moment")
    epsilon = attr(1e-6)

    def sparse_variant(self) -> str:
        """The op for sparse gradients, which updates only rows in the gradient."""
        return "adagrad_rows"

    def compute(
        self, xp: Xp, Param: Value, Grad: Value, Moment: Value, LearningRate: Value
    ) -> Value:
        moment = Moment + Grad * Grad
        step = LearningRate * Grad / (xp.sqrt(moment) + self.epsilon)
        return {"ParamOut": Param - step, "MomentOut": moment}


class Adam(Update, op="adam"):
    """Moments of the gradient decay by beta1 and beta2; Param moves by their ratio.

    rate = LearningRate * sqrt(1 - Beta2Pow) / (1 - Beta1Pow);
    Param -= rate * Moment1 / (sqrt(Moment2) + epsilon). Beta1Pow and Beta2Pow start at the betas
    and are multiplied by them after use. `lazy_mode` affects sparse gradients only;
    `min_row_size_to_use_multithread` has no effect. Reference: adam_op.h.
    """

    Moment1 = reads()
    Moment2 = reads()
    Beta1Pow = reads()
    Beta2Pow = reads()
    Beta1Tensor = reads(optional=True)
    Beta2Tensor = reads(optional=True)
    Moment1Out = writes(inplace="Moment1")
    Moment2Out = writes(inplace="Moment2")
    Beta1PowOut = writes(inplace="Beta1Pow")
    Beta2PowOut = writes(inplace="Beta2Pow")
    beta1 = attr(0.9)
    beta2 = attr(0.999)
    epsilon = attr(1e-8)
    lazy_mode = attr(False)
    min_row_size_to_use_multithread = attr(1000, WIDE)

    def sparse_variant(self) -> str:
        """The op for sparse gradients in lazy mode, which updates only their rows; else none."""
        return "adam_rows" if self.lazy_mode else ""

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        LearningRate: Value,
        Moment1: Value,
        Moment2: Value,
        Beta1Pow: Value,
        Beta2Pow: Value,
        Beta1Tensor: Value | None,
        Beta2Tensor: Value | None,
    ) -> Value:
        beta1 = self.beta1 if Beta1Tensor is None else Beta1Tensor
        beta2 = self.beta2 if Beta2Tensor is None else Beta2Tensor
        first = Moment1 * beta1 + Grad * (1.0 - beta1)
        second = Moment2 * beta2 + Grad * Grad * (1.0 - beta2)
        rate = LearningRate * xp.sqrt(1.0 - Beta2Pow) / (1.0 - Beta1Pow)
        return {
            "ParamOut": Param - rate * (first / (xp.sqrt(second) + self.epsilon)),
            "Moment1Out": first,
            "Moment2Out": second,
            "Beta1PowOut": Beta1Pow * beta1,
            "Beta2PowOut": Beta2Pow * beta2,
        }


class Adamax(Update, op="adamax"):
    """Adam by the infinity norm (Kingma & Ba, 2015): `first` = the moving mean of Grad,

    InfNorm = max(beta2 * InfNorm + epsilon, |Grad|);
    Param -= LearningRate / (1 - Beta1Pow) * first / InfNorm. Reference: adamax_op.h.
    """

    Moment = reads()
    InfNorm = reads()
    Beta1Pow = reads()
    MomentOut = writes(inplace="Moment")
    InfNormOut = writes(inplace="InfNorm")
    beta1 = attr(0.9)
    beta2 = attr(0.999)
    epsilon = attr(1e-8)

    def compute(
        self,
        xp: Xp,
        Param: Value,
        Grad: Value,
        LearningRate: Value,
        Moment: Value,
        InfNorm: Value,
        Beta1Pow: Value,
    ) -> Value:
        first = Moment * self.beta1 + Grad * (1.0 - self.beta1)
        largest = xp.maximum(InfNorm * self.beta2 + self.epsilon, xp.abs(Grad))
        rate = LearningRate / (1.0 - Beta1Pow)
        return {
            "ParamOut": Param - rate * (first / largest),
            "MomentOut": first,
            "InfNormOut": largest,
        }
