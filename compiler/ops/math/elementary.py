"""Pointwise elementary functions: roots, logarithms, trigonometry.

Reference: activation_op.h.
"""

from __future__ import annotations

from compiler.ir.opdef import Value, Xp
from compiler.ops.math.activation import Unary


class Reciprocal(Unary, op="reciprocal"):
    """Out = 1 / X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return 1.0 / X

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": -(d_Out * Out * Out)}


class Rsqrt(Unary, op="rsqrt"):
    """Out = 1 / the square root of X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return 1.0 / xp.sqrt(X)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * -0.5 * Out * Out * Out}


class Round(Unary, op="round"):
    """Out = X rounded to the nearest integer, ties to even; its gradient is 0 everywhere.

    The reference's CPU kernel rounds ties to even in its vectorised part only, and ties away from 0
    in the remainder loop.
    """

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.rint(X)

    def grad(self, xp: Xp, d_Out: Value) -> Value:
        return {"X": xp.zeros_like(d_Out)}


class Trunc(Unary, op="trunc"):
    """Out = X rounded towards zero; its gradient is 0 everywhere."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.trunc(X)

    def grad(self, xp: Xp, d_Out: Value) -> Value:
        return {"X": xp.zeros_like(d_Out)}


# ---- logarithms --------------------------------------------------------------------------------


class Log1p(Unary, op="log1p"):
    """Out = the natural logarithm of 1 + X."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.log1p(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / (X + 1.0)}


class Log2(Unary, op="log2"):
    """Out = the logarithm of X to the base 2."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.log2(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / (X * 0.6931471805599453)}


class Log10(Unary, op="log10"):
    """Out = the logarithm of X to the base 10."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.log10(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / (X * 2.302585092994046)}


class Expm1(Unary, op="expm1"):
    """Out = e ** X - 1."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.expm1(X)

    def grad(self, xp: Xp, Out: Value, d_Out: Value) -> Value:
        return {"X": d_Out * (Out + 1.0)}


# ---- trigonometry ------------------------------------------------------------------------------


class Sin(Unary, op="sin"):
    """Out = sin(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.sin(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.cos(X)}


class Tan(Unary, op="tan"):
    """Out = tan(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.tan(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / xp.square(xp.cos(X))}


class Asin(Unary, op="asin"):
    """Out = arcsin(X), in [-π/2, π/2]."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.arcsin(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / xp.sqrt(1.0 - X * X)}


class Acos(Unary, op="acos"):
    """Out = arccos(X), in [0, π]."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.arccos(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": -(d_Out / xp.sqrt(1.0 - X * X))}


class Atan(Unary, op="atan"):
    """Out = arctan(X), in (-π/2, π/2)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.arctan(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out / (1.0 + X * X)}


class Sinh(Unary, op="sinh"):
    """Out = sinh(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.sinh(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.cosh(X)}


class Cosh(Unary, op="cosh"):
    """Out = cosh(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.cosh(X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.sinh(X)}
