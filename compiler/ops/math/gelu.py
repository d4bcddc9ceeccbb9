"""The error function, and GELU.

NumPy has no error function. In single precision it is tanh of a polynomial with an error below
1e-7; in double precision it is a sum of sines with an error below 1e-14.
"""

from __future__ import annotations

from compiler.ir.opdef import Value, Xp, attr
from compiler.ops.math.activation import Unary


def erf(xp: Xp, x: Value) -> Value:
    """Compute the error function, 2/√π · ∫ exp(-t²) dt from 0 to x, in the precision of `x`."""
    if x.dtype.itemsize == 8:
        return erf_fourier(xp, x)
    return xp.tanh(x * 1.4142135623730951 * half_log_odds(xp, x * x * 2.0))


def erf_fourier(xp: Xp, x: Value) -> Value:
    """Return erf(x) from the Fourier series of a Gaussian-smoothed square wave of period 24.

    Each term is damped as by the convolution with a Gaussian; up to |x| = 6, where erf is 1 in
    double precision, the other edges of the wave are too far away to contribute.
    """
    angle = xp.minimum(xp.maximum(x, -6.0), 6.0) * 0.2617993877991494
    total = 0.0
    for n in range(1, 48, 2):
        damped = 2.718281828459045 ** -((0.1308996938995747 * n) ** 2)
        total = total + xp.sin(angle * n) * (damped / n)
    return total * 1.2732395447351628


def half_log_odds(xp: Xp, square: Value) -> Value:
    """Return ½·log(Φ(x) / (1 - Φ(x))) / x as a function of x², Φ being the normal CDF.

    So Φ(x) = ½ + ½·tanh(x · this). A polynomial fitted for an error of Φ of at most 3e-8; x² is
    clamped at 30, beyond which Φ is 0 or 1 in single precision.
    """
    clamped = xp.minimum(square, 30.0)
    slope = 1.75617079e-09
    for c in (-1.32263341e-07, 3.96474443e-06, -5.53061938e-05, -3.25949754e-05):
        slope = clamped * slope + c
    return (clamped * slope + 0.0363330846) * clamped + 0.797884941


def normal_cdf(xp: Xp, x: Value) -> Value:
    """Return the normal CDF Φ(x) = ½·(1 + erf(x/√2)) in the precision of `x`."""
    if x.dtype.itemsize == 8:
        return erf_fourier(xp, x * 0.7071067811865476) * 0.5 + 0.5
    return xp.tanh(x * half_log_odds(xp, x * x)) * 0.5 + 0.5


class Erf(Unary, op="erf"):
    """Out = erf(X)."""

    def compute(self, xp: Xp, X: Value) -> Value:
        return erf(xp, X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.exp(-(X * X)) * 1.1283791670955126}


class Gelu(Unary, op="gelu"):
    """Out = X * Φ(X), Φ the normal CDF.

    With `approximate` it is ½·X·(1 + tanh(√(2/π)·(X + 0.044715·X³))). Reference: gelu_op.h.
    """

    approximate = attr(False)

    def compute(self, xp: Xp, X: Value) -> Value:
        if self.approximate:
            bent = xp.tanh(X * (X * X * 0.035677408136300125 + 0.7978845608028654))
            return X * (bent * 0.5 + 0.5)
        return X * normal_cdf(xp, X)

    def grad(self, xp: Xp, X: Value, d_Out: Value) -> Value:
        square = X * X
        if self.approximate:
            bent = xp.tanh(X * (square * 0.035677408136300125 + 0.7978845608028654))
            slope = X * (square * 0.10703222440890037 + 0.7978845608028654)
            return {"X": d_Out * (0.5 + 0.5 * bent + 0.5 * slope * (1.0 - bent * bent))}
        density = xp.exp(square * -0.5) * 0.3989422804014327
        return {"X": d_Out * (normal_cdf(xp, X) + X * density)}
