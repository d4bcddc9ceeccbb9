"""`inplace_abn`: batch normalisation and an invertible activation.

Y overwrites X, so that the gradient recomputes the normalised values from Y.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import Slots, attr
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.norm import batch_norm_kernels as kernels
from compiler.ops.norm.batch_norm import BatchNormalisation
from compiler.ops.norm.batch_norm_numpy import channel_rows, normalised, rows_gradient, rows_like
from compiler.ops.norm.channel_kernels import Channels

ACTIVATIONS = ("", "identity", "leaky_relu", "elu")


def apply_activation(x: Array, activation: str, alpha: float) -> Array:
    """Return the activation of values."""
    if activation == "elu":
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    return np.where(x > 0, x, alpha * x) if activation == "leaky_relu" else x


def invert_activation(
    y: Array, upstream: Array, activation: str, alpha: float
) -> tuple[Array, Array]:
    """Return activation inputs and their gradient, from activation outputs and their gradient."""
    if activation == "elu":
        x = np.where(y > 0, y, np.log1p(np.minimum(y, 0) / alpha))
        return x, np.where(y > 0, upstream, upstream * (y + alpha))
    if activation == "leaky_relu":
        return np.where(y > 0, y, y / alpha), np.where(y > 0, upstream, upstream * alpha)
    return y, upstream


class InplaceAbn(BatchNormalisation, op="inplace_abn"):
    """Y = activation(batch_norm(X)); the activation is identity, leaky_relu or elu with `alpha`.

    Scale must not be 0 anywhere, because the gradient divides by it. Reference: inplace_abn_op.cc.
    """

    activation = attr("")
    alpha = attr(0.1)
    use_sync_bn = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        if self.activation not in ACTIVATIONS:
            actual = f"inplace_abn: activation is {self.activation!r}"
            raise BadAttribute(actual, hint="expected identity, leaky_relu or elu")
        return super().infer(s)

    def numpy(
        self,
        X: Array,
        Scale: Array,
        Bias: Array,
        Mean: Array,
        Variance: Array,
        MomentumTensor: Array | None,
    ) -> dict[str, Array]:
        keep = self.momentum if MomentumTensor is None else float(MomentumTensor.ravel()[0])
        frozen = self.use_global_stats or (self.is_test and not self.trainable_statistics)
        arguments = (X, Scale, Bias, Mean, Variance, keep, self.epsilon, frozen, self.data_layout)
        result = normalised(*arguments)
        return {**result, "Y": apply_activation(result["Y"], self.activation, self.alpha)}

    def grad(
        self,
        Y: Array,
        Scale: Array,
        Bias: Array,
        SavedMean: Array,
        SavedVariance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        y, upstream = (channel_rows(array, self.data_layout) for array in (Y, d_Y))
        y, upstream = invert_activation(y, upstream, self.activation, self.alpha)
        frozen = self.use_global_stats or (self.is_test and not self.trainable_statistics)
        result = rows_gradient((y - Bias) / Scale, upstream, Scale * SavedVariance, frozen)
        return {
            "X": rows_like(result[0], Y, self.data_layout),
            "Scale": result[1],
            "Bias": result[2],
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        super().kernel(k, s)
        if (Y := s.get("Y")) is not None and self.activation in ("leaky_relu", "elu"):
            at = k.grid(*Y.shape)
            k.store(Y, at, activated_value(k, Y[at], self.activation, self.alpha))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        Y, Scale = s.Y, s.Scale
        straight, upstream = (k.scratch(Y.shape, Y.type.dtype) for _ in range(2))
        at = k.grid(*Y.shape)
        values = inverted_value(k, Y[at], s.d_Y[at], self.activation, self.alpha)
        for out, value in zip((straight, upstream), values, strict=True):
            k.store(out, at, value)
        factor, inverse = (k.scratch(Scale.shape, Scale.type.dtype) for _ in range(2))
        (c,) = k.grid(*Scale.shape)
        k.store(factor, (c,), Scale[c] * Scale[c] * s.SavedVariance[c])
        k.store(inverse, (c,), 1.0 / Scale[c])
        channels = Channels.of(self.data_layout, Y.shape)
        # With Bias as the mean and 1/Scale as 1/deviation, Y normalises to the values of X.
        operands = (straight, upstream, factor, s.Bias, inverse)
        kernels.gradient(
            k, channels, operands, (s.get("d_X"), s.get("d_Scale"), s.get("d_Bias")), self.is_frozen
        )


def activated_value(k: KernelBuilder, x: Number, activation: str, alpha: float) -> Number:
    """Return `apply_activation` of one value."""
    below = x if activation == "leaky_relu" else k.expm1(k.minimum(x, 0.0))
    return k.where(x > 0, x, below * alpha)


def inverted_value(
    k: KernelBuilder, y: Number, upstream: Number, activation: str, alpha: float
) -> tuple[Number, Number]:
    """Return `invert_activation` of one result and its gradient."""
    if activation == "elu":
        x = k.where(y > 0, y, k.log1p(k.minimum(y, 0.0) / alpha))
        return x, k.where(y > 0, upstream, upstream * (y + alpha))
    if activation == "leaky_relu":
        return k.where(y > 0, y, y / alpha), k.where(y > 0, upstream, upstream * alpha)
    return y, upstream
