"""Pointwise functions of one tensor. Reference: activation_op.h, clip_op.h, sign_op.h."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import Pointwise, Slots, Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType
from compiler.ops.math.elementwise import gradient_op, input_or_attr, is_floating


class Unary(Pointwise):
    """A pointwise op of one input; Out has the type of X."""

    X = reads()
    Out = writes()


class Relu(Unary, op="relu"):
    """Out = max(X, 0)."""

    is_piecewise_linear = True

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.maximum(X, 0.0)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (Out > 0.0)}


class Relu6(Unary, op="relu6"):
    """Out = min(max(X, 0), threshold)."""

    is_piecewise_linear = True

    threshold = attr(6.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.minimum(xp.maximum(X, 0.0), self.threshold)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.logical_and(Out > 0.0, Out < self.threshold)}


class Clip(Unary, op="clip"):
    """Out = X clamped to [`min`, `max`]; the optional inputs Min and Max override the attributes.

    Reference: clip_op.h.
    """

    is_piecewise_linear = True

    X = reads()
    Min = reads(optional=True, no_grad=True)
    Max = reads(optional=True, no_grad=True)
    Out = writes()
    min = required(float)
    max = required(float)

    def sparse_variant(self) -> str:
        """Clip only the rows present in a sparse X; missing rows stay 0."""
        return "clip_rows"

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raise BadAttribute if min > max."""
        if not (types.get("Min") or types.get("Max")) and self.min > self.max:
            raise BadAttribute(f"clip: min is {self.min}, expected no more than max={self.max}")
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value, Min: Value, Max: Value) -> Value:
        low, high = input_or_attr(Min, self.min), input_or_attr(Max, self.max)
        return xp.minimum(xp.maximum(X, low), high)

    def grad(self, xp: Xp, X: Value, Min: Value, Max: Value, d_Out: Value) -> Value:
        low, high = input_or_attr(Min, self.min), input_or_attr(Max, self.max)
        return {"X": d_Out * xp.logical_and(xp.greater(X, low), xp.less(X, high))}


class ClipByNorm(Whole, op="clip_by_norm"):
    """Out = X * max_norm / |X| if the L2 norm |X| of the whole tensor exceeds `max_norm`, else X.

    Reference: clip_by_norm_op.h.
    """

    X = reads()
    Out = writes()
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {"Out": ("X",)}
    max_norm = required(float, FINITE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def sparse_variant(self) -> str:
        """A sparse X yields a sparse Out."""
        return "clip_by_norm_rows"

    def numpy(self, X: Array) -> Array:
        norm = np.sqrt(np.vdot(X, X))
        return X * X.dtype.type(self.max_norm / np.maximum(norm, self.max_norm))

    def measure(self, xp: Xp, X: Value) -> dict[str, Value]:
        return {"squares": X * X}

    def compute(self, xp: Xp, X: Value, squares: Value) -> Value:
        return X * (self.max_norm / xp.maximum(xp.sqrt(squares), self.max_norm))


class Sigmoid(Unary, op="sigmoid"):
    """Out = 1 / (1 + exp(-X))."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return 1.0 / (1.0 + xp.exp(-X))

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * Out * (1.0 - Out)}


class Tanh(Unary, op="tanh"):
    """Out = tanh(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.tanh(X)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (1.0 - Out * Out)}


class Exp(Unary, op="exp"):
    """Out = e ** X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.exp(X)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * Out}


class Log(Unary, op="log"):
    """Out = the natural logarithm of X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.log(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / X}


class Sqrt(Unary, op="sqrt"):
    """Out = the square root of X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.sqrt(X)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * 0.5 / Out}


class Square(Unary, op="square"):
    """Out = X * X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.square(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * X * 2.0}


class Abs(Unary, op="abs"):
    """Out = |X|; at 0 the gradient is 0."""

    is_piecewise_linear = True

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.abs(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.sign(X)}


class Floor(Unary, op="floor"):
    """Out = the largest integer not above X; its gradient is 0 everywhere."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.floor(X)

    def grad(self, xp: Xp, d_Out: Value) -> Value:
        return {"X": xp.zeros_like(d_Out)}


class Ceil(Unary, op="ceil"):
    """Out = the smallest integer not below X; its gradient is 0 everywhere."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.ceil(X)

    def grad(self, xp: Xp, d_Out: Value) -> Value:
        return {"X": xp.zeros_like(d_Out)}


class Cos(Unary, op="cos"):
    """Out = cos(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.cos(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": -(d_Out * xp.sin(X))}


class Pow(Unary, op="pow"):
    """Out = X ** factor; FactorTensor overrides `factor`. Integer X uses the factor cast to int."""

    X = reads()
    FactorTensor = reads(optional=True, no_grad=True)
    Out = writes()
    factor = attr(1.0)

    def compute(self, xp: Xp, X: Value, FactorTensor: Value) -> Value:
        factor = self.factor if is_floating(X) else int(self.factor)
        return xp.power(X, input_or_attr(FactorTensor, factor))

    def grad(self, xp: Xp, X: Value, FactorTensor: Value, d_Out: Value) -> Value:
        factor = input_or_attr(FactorTensor, self.factor)
        return {"X": d_Out * factor * xp.power(X, factor - 1.0)}


class Sign(Unary, op="sign"):
    """Out = -1, 0 or 1, the sign of X; its gradient is 0."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.sign(X)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_op("scale", op, grad, {"scale": 0.0})]
