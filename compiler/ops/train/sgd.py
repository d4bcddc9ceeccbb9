"""Optimizer updates of one parameter. Every output overwrites the state it updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, required, writes
from compiler.ops.type_checks import require_same_dtype, require_same_shape


class Updated(Pointwise):
    """The base of updates of a parameter by a gradient of the same type."""

    Param = reads()
    Grad = reads()
    ParamOut = writes(inplace="Param")

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the overwritten values; ShapeError if Grad and Param differ in type."""
        require_same_dtype(self.kind, Param=types["Param"], Grad=types["Grad"])
        require_same_shape(self.kind, Param=types["Param"], Grad=types["Grad"])
        return super().infer_types(types)


class Update(Updated):
    """An update with a learning rate, a tensor of one element."""

    LearningRate = reads()


class Sgd(Update, op="sgd"):
    """Param -= LearningRate * Grad. Reference: sgd_op.h."""

    def sparse_variant(self) -> str:
        """The op for sparse gradients, which updates only rows in the gradient."""
        return "sgd_rows"

    def compute(self, xp: Xp, Param: Value, Grad: Value, LearningRate: Value) -> Value:
        return Param - LearningRate * Grad


class Momentum(Update, op="momentum"):
    """Velocity = mu * Velocity + Grad; Param -= LearningRate * Velocity.

    With `use_nesterov`, Param -= LearningRate * (Grad + mu * Velocity). Reference: momentum_op.h.
    """

    Velocity = reads()
    VelocityOut = writes(inplace="Velocity")
    mu = required(float)
    use_nesterov = attr(False)

    def compute(
        self, xp: Xp, Param: Value, Grad: Value, Velocity: Value, LearningRate: Value
    ) -> Value:
        velocity = Velocity * self.mu + Grad
        step = velocity * self.mu + Grad if self.use_nesterov else velocity
        return {"ParamOut": Param - LearningRate * step, "VelocityOut": velocity}
