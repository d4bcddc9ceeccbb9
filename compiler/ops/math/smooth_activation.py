"""Smooth activations built from exp and tanh. Reference: activation_op.h, mish_op.h.

Where possible, exp is applied to non-positive values only, so that it cannot overflow.
"""

from __future__ import annotations

from compiler.ir.opdef import Value, Xp, attr
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ops.math.activation import Unary


def sigmoid(xp: Xp, x: Value) -> Value:
    """Return 1 / (1 + exp(-x)), computed by tanh, which cannot overflow."""
    return xp.tanh(x * 0.5) * 0.5 + 0.5


def softplus(xp: Xp, x: Value) -> Value:
    """Return log(1 + exp(x)) without overflow."""
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


class Logsigmoid(Unary, op="logsigmoid"):
    """Out = log(1 / (1 + exp(-X)))."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return -softplus(xp, -X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * sigmoid(xp, -X)}


class Softplus(Unary, op="softplus"):
    """Out = log(1 + exp(beta * X)) / beta, and X where beta * X > `threshold`.

    For thresholds from 20 on both agree. The reference 1.8 has neither attribute; their defaults
    reproduce its results.
    """

    beta = attr(1.0, FINITE)
    threshold = attr(20.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        steep = X * self.beta
        soft = softplus(xp, steep) * (1.0 / self.beta)
        return soft if self.threshold >= 20.0 else xp.where(steep > self.threshold, X, soft)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        steep = X * self.beta
        slope = d_Out * sigmoid(xp, steep)
        short = self.threshold < 20.0
        return {"X": xp.where(steep > self.threshold, d_Out, slope) if short else slope}


class SoftRelu(Unary, op="soft_relu"):
    """Out = log(1 + exp(X)), X clamped to [-threshold, threshold]."""

    threshold = attr(40.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return softplus(xp, xp.minimum(xp.maximum(X, -self.threshold), self.threshold))

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        inside = xp.logical_and(Out > -self.threshold, Out < self.threshold)
        return {"X": d_Out * (1.0 - xp.exp(-Out)) * inside}


class Softsign(Unary, op="softsign"):
    """Out = X / (1 + |X|)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return X / (1.0 + xp.abs(X))

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / xp.square(1.0 + xp.abs(X))}


class Stanh(Unary, op="stanh"):
    """Out = scale_b * tanh(scale_a * X)."""

    scale_a = attr(0.67)
    scale_b = attr(1.7159)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.tanh(X * self.scale_a) * self.scale_b

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        bent = xp.tanh(X * self.scale_a)
        return {"X": d_Out * (1.0 - bent * bent) * (self.scale_a * self.scale_b)}


class TanhShrink(Unary, op="tanh_shrink"):
    """Out = X - tanh(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return X - xp.tanh(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.square(xp.tanh(X))}


class Swish(Unary, op="swish"):
    """Out = X / (1 + exp(-beta * X)).

    `slope` is ignored: layers of the reference stored beta there, but no kernel reads it.
    """

    beta = attr(1.0, FINITE)
    slope = attr(1.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X * sigmoid(xp, X * self.beta)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        part = sigmoid(xp, X * self.beta)
        return {"X": d_Out * part * (1.0 + X * self.beta * (1.0 - part))}


class Silu(Unary, op="silu"):
    """Out = X / (1 + exp(-X))."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return X * sigmoid(xp, X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        part = sigmoid(xp, X)
        return {"X": d_Out * part * (1.0 + X * (1.0 - part))}


def bounded_softplus(xp: Xp, x: Value, threshold: float) -> Value:
    """Return log(1 + exp(x)), replaced by x above the threshold and by exp(x) below its negative.

    For thresholds from 20 on these agree.
    """
    if threshold >= 20.0:
        return softplus(xp, x)
    above = xp.where(x > threshold, x, softplus(xp, x))
    return xp.where(x < -threshold, xp.exp(xp.minimum(x, 0.0)), above)


class Mish(Unary, op="mish"):
    """Out = X * tanh(log(1 + exp(X))), the softplus being approximated beyond ±`threshold`."""

    threshold = attr(20.0)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X * xp.tanh(bounded_softplus(xp, X, self.threshold))

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        soft = bounded_softplus(xp, X, self.threshold)
        bent = xp.tanh(soft)
        return {"X": d_Out * (bent - X * (1.0 - bent * bent) * xp.expm1(-soft))}
